"""The search attributes of sessions, turns and runs, all Keyword; register them before the first worker starts."""

from temporalio.common import SearchAttributeKey, SearchAttributePair, SearchAttributeUpdate, TypedSearchAttributes

from turnkeeper import names

TENANT = SearchAttributeKey.for_keyword(names.TENANT_ATTRIBUTE)
AGENT = SearchAttributeKey.for_keyword(names.AGENT_ATTRIBUTE)
INSTANCE = SearchAttributeKey.for_keyword(names.INSTANCE_ATTRIBUTE)
RUN_ID = SearchAttributeKey.for_keyword(names.RUN_ID_ATTRIBUTE)
PARENT_RUN_ID = SearchAttributeKey.for_keyword(names.PARENT_RUN_ID_ATTRIBUTE)
OUTCOME = SearchAttributeKey.for_keyword(names.OUTCOME_ATTRIBUTE)


def instance_attributes(instance: str, agent_type: str) -> TypedSearchAttributes:
    """Return the search attributes of a session or a turn."""
    return TypedSearchAttributes(_instance_pairs(instance, agent_type))


def run_attributes(instance: str, agent_type: str, run_id: str) -> TypedSearchAttributes:
    """Return the search attributes of an agent-tool run that `instance` dispatches."""
    pairs = [*_instance_pairs(instance, agent_type), SearchAttributePair(RUN_ID, run_id)]
    parent_run_id = names.run_id_of(instance)
    if parent_run_id is not None:
        pairs.append(SearchAttributePair(PARENT_RUN_ID, parent_run_id))
    return TypedSearchAttributes(pairs)


def outcome_update(status: str) -> SearchAttributeUpdate[str]:
    """Return the update that marks how a run ended."""
    return OUTCOME.value_set(status)


def _instance_pairs(instance: str, agent_type: str) -> list[SearchAttributePair[str]]:
    return [
        SearchAttributePair(TENANT, names.tenant_of(instance)),
        SearchAttributePair(AGENT, agent_type),
        SearchAttributePair(INSTANCE, instance),
    ]
