"""Workflow ids are paths, formatted and parsed in one place; registered names never change."""

import pytest

from turnkeeper import names

INSTANCE = "default/Desk/main"


def test_a_workflow_id_is_the_path_of_its_resource() -> None:
    """DI-02: the run id is the last segment of the run's own workflow id."""
    assert names.session_workflow_id("default", "Desk", "main") == INSTANCE
    assert names.turn_workflow_id(INSTANCE, "3") == "default/Desk/main/turns/3"
    assert names.run_workflow_id(INSTANCE, "r-1") == "default/Desk/main/runs/r-1"
    assert names.run_workflow_id(names.run_workflow_id(INSTANCE, "r"), "s") == "default/Desk/main/runs/r/runs/s"


def test_a_workflow_id_can_be_taken_apart() -> None:
    """What was formatted here is parsed here."""
    assert names.tenant_of("acme/Desk/main/runs/r") == "acme"
    assert names.agent_and_name_of(INSTANCE) == ("Desk", "main")


@pytest.mark.parametrize(
    ("workflow_id", "run_id"),
    [
        (INSTANCE, None),
        ("default/Desk/main/turns/3", None),
        ("default/Desk/main/runs/r", "r"),
        ("default/Desk/main/runs/r/runs/s", "s"),
        ("default/Desk/main/runs/r/turns/0", "r"),
        ("default/Desk/runs/runs/runs", "runs"),
        ("default/runs/main", None),
    ],
)
def test_the_innermost_run_on_a_path_is_found(workflow_id: str, run_id: str | None) -> None:
    """NE: a run's parent is known by its path, even when agents and instances are called like a segment."""
    assert names.run_id_of(workflow_id) == run_id


@pytest.mark.parametrize(
    ("workflow_id", "root", "run_path"),
    [
        (INSTANCE, INSTANCE, None),
        ("default/Desk/main/turns/3", INSTANCE, None),
        ("default/Desk/main/runs/r", INSTANCE, "r"),
        ("default/Desk/main/runs/r/runs/s", INSTANCE, "r/runs/s"),
        ("default/Desk/main/runs/r/turns/0", INSTANCE, None),
        ("default/Desk/main/runs/", INSTANCE, None),
        ("default/Desk/runs/runs/runs", "default/Desk/runs", "runs"),
        ("default/Desk/runs", "default/Desk/runs", None),
        ("default/runs/main/runs/r", "default/runs/main", "r"),
    ],
)
def test_ev_02_a_run_is_known_by_its_path_below_its_root_instance(
    workflow_id: str, root: str, run_path: str | None
) -> None:
    """EV-02: one log for a whole tree, in which the path tells the runs apart."""
    assert names.root_instance(workflow_id) == root
    assert names.run_path_of(workflow_id) == run_path


def test_di_20_the_run_id_of_a_models_call_comes_from_turn_step_and_position() -> None:
    """DI-20 as decided: never from the provider's call id."""
    assert names.model_run_id("3", 0, 2) == "3-0-2"


def test_the_message_of_a_turn_is_named_after_it() -> None:
    """One assistant message a turn, under one id."""
    assert names.assistant_message_id("3") == "turn-3"


def test_di_01_a_generated_run_id_has_12_characters_and_is_a_name() -> None:
    """DI-01."""
    run_id = names.generated_run_id("default/Desk/main/turns/1/0/0", "A/d", 1)
    assert len(run_id) == 12
    assert names.is_name(run_id)


def test_di_01_a_generated_run_id_is_the_same_at_every_attempt_and_in_every_release() -> None:
    """DI-01: a tool that is tried again meets its first run."""
    assert names.generated_run_id("key", "A/d", 1) == "26fe873da9b3"


def test_di_01_each_dispatch_of_each_call_has_a_generated_run_id_of_its_own() -> None:
    """DI-01: two dispatches are two runs."""
    ids = {
        names.generated_run_id(key, work, ordinal)
        for key in ("a", "b", "a/1")
        for work in ("x", "1/x")
        for ordinal in range(3)
    }
    assert len(ids) == 18


@pytest.mark.parametrize("text", ["a", "A-b_c~d.9", "-", "~", "x" * 128])
def test_a_name_is_made_of_what_a_url_leaves_alone(text: str) -> None:
    """Names and ids are segments of paths."""
    assert names.is_name(text)


@pytest.mark.parametrize("text", ["", ".", "..", ".a", "a b", "a/b", "ä", "a\n", "a%20", "a:b", "x" * 129])
def test_what_would_be_changed_on_the_way_is_no_name(text: str) -> None:
    """A leading dot, a slash, a line end and non-Latin letters would not come back as they were sent."""
    assert not names.is_name(text)


@pytest.mark.parametrize(
    ("path", "run_ids"), [("a", ["a"]), ("a/runs/b", ["a", "b"]), ("a/runs/b/runs/c", ["a", "b", "c"])]
)
def test_dg_03_a_path_of_runs_is_parsed_outermost_first(path: str, run_ids: list[str]) -> None:
    """DG-03: drill-in goes from an instance down to a run."""
    assert names.parse_run_path(path) == run_ids


@pytest.mark.parametrize("path", ["", "a/", "/a", "a/runs", "a/turns/b", "a/b/c", "a/runs/", "a/runs/..", "a//b"])
def test_dg_03_what_is_no_path_of_runs_is_recognised(path: str) -> None:
    """DG-03: nothing else is looked up."""
    assert names.parse_run_path(path) is None


def test_registered_names_are_what_they_have_always_been() -> None:
    """Histories, clients in other languages and running workflows know these names; renaming one breaks them."""
    constants = {name: value for name, value in vars(names).items() if name.isupper() and isinstance(value, str)}
    del constants["NAME_PATTERN"]
    assert constants == {
        "DEFAULT_TENANT": "default",
        "DEFAULT_TASK_QUEUE": "turnkeeper",
        "AGENT_SESSION": "AgentSession",
        "AGENT_TURN": "AgentTurn",
        "AGENT_TOOL_RUN": "AgentToolRun",
        "SUBMIT": "submit",
        "CANCEL_TURN": "cancel_turn",
        "DISPATCH_RUN": "dispatch_run",
        "CANCEL_RUN": "cancel_run",
        "CLEAR_RUNS": "clear_runs",
        "DISPATCH_DETACHED": "dispatch_detached",
        "POST_WEBHOOK": "post_webhook",
        "DISPATCH_FOR_AUTHOR": "dispatch_for_author",
        "CANCEL_FOR_AUTHOR": "cancel_for_author",
        "CLEAR_MESSAGES": "clear_messages",
        "SET_STATE": "set_state",
        "STEER": "steer",
        "STATE": "state",
        "INSPECT_RUNS": "inspect_runs",
        "REPORT": "report",
        "WRAP_UP": "wrap_up",
        "RUN_REPORTED": "run_reported",
        "RUN_FINISHED": "run_finished",
        "SNAPSHOT": "snapshot",
        "MESSAGES": "messages",
        "TURN": "turn",
        "RUNS": "runs",
        "INSPECT": "inspect",
        "CALL_MODEL": "call_model",
        "CALL_TOOL": "call_tool",
        "CALL_HOOK": "call_hook",
        "CHECK_OUTPUT": "check_output",
        "ATTACH_RUN": "attach_run",
        "READ_STOPPED_TURN": "read_stopped_turn",
        "PUBLISH": "publish",
        "TENANT_ATTRIBUTE": "TurnkeeperTenant",
        "AGENT_ATTRIBUTE": "TurnkeeperAgent",
        "INSTANCE_ATTRIBUTE": "TurnkeeperInstance",
        "RUN_ID_ATTRIBUTE": "TurnkeeperRunId",
        "PARENT_RUN_ID_ATTRIBUTE": "TurnkeeperParentRunId",
        "OUTCOME_ATTRIBUTE": "TurnkeeperOutcome",
        "RUN_TURN": "0",
    }
