"""Tools: schemas from signatures, arguments from models, results for models, and what is refused."""

import re
from collections.abc import Awaitable, Callable
from datetime import date, timedelta
from typing import Annotated, Any, Literal, cast

import pytest
from pydantic import BaseModel, Field, JsonValue

from turnkeeper.agents import Agent
from turnkeeper.errors import AgentDefinitionError
from turnkeeper.messages import ToolPart, UIMessage
from turnkeeper.runs import Display
from turnkeeper.tools import MAX_RESULT_BYTES, AgentTool, ArgumentError, FunctionTool, ResultError, agent_tool, tool
from turnkeeper.turns import MessagesPage


class Filter(BaseModel):
    """A declared object."""

    name: str
    limit: int = 10


class Ratio(BaseModel):
    """A result with a number."""

    value: float


class Question(BaseModel):
    """An agent tool's input."""

    query: str
    filters: list[Filter] = []


class Sampler(Agent):
    """An agent with a tool of each kind."""

    @tool
    async def search(
        self, query: str, filters: list[Filter], limit: int = 5, kind: Literal["web", "news"] | None = None
    ) -> list[str]:
        """Search the web.

        Finds pages, newest first.

        Args:
            query: what to look for,
                in any language.
            filters: which pages.
            limit: at most so many.
            kind: where to look.

        Returns:
            Addresses.
        """
        return [query]

    @tool(name="clock", description="Tell the time.", timeout=timedelta(seconds=5), idempotent=True)
    async def now(self) -> str:
        """Not what the model reads."""
        return ""

    @tool
    async def store(self, *, fields: dict[str, int], note: str) -> Any:
        """Store fields."""

    @tool
    async def shift(self, day: date, by: Annotated[int, Field(ge=1, description="days")] = 1) -> date:
        """Return a later day."""
        return day + timedelta(days=by)

    ask = agent_tool("Sampler", description="Ask yourself.", input=Question, output=list[str], icon="?")
    other = agent_tool("Sampler", description="Ask.", input=Question, name="ask_other", display_name="Other")
    plain = agent_tool("Sampler", description="Ask.", input=Question)


def _function(name: str) -> FunctionTool:
    found = Sampler.tools[name]
    assert isinstance(found, FunctionTool)
    return found


def _property(tool_name: str, argument: str) -> dict[str, Any]:
    properties = cast(dict[str, dict[str, Any]], _function(tool_name).parameters["properties"])
    return properties[argument]


def _agent_tool(name: str) -> AgentTool:
    found = Sampler.tools[name]
    assert isinstance(found, AgentTool)
    return found


def _defined(method: Callable[..., Awaitable[Any]], **options: Any) -> FunctionTool:
    """Return the tool of an agent whose only tool is `method`."""
    agent = cast(type[Agent], type("Defined", (Agent,), {"method": tool(**options)(method)}))
    [found] = agent.tools.values()
    assert isinstance(found, FunctionTool)
    return found


def test_the_schema_of_a_tool_comes_from_its_signature() -> None:
    """IN-10: types, defaults and descriptions are what the author wrote, and nothing else is accepted."""
    schema = _function("search").parameters
    assert schema["type"] == "object"
    assert schema["required"] == ["query", "filters"]
    assert schema["additionalProperties"] is False
    assert "title" not in schema
    assert _property("search", "query") == {"type": "string", "description": "what to look for,\nin any language."}
    assert _property("search", "limit") == {"type": "integer", "default": 5, "description": "at most so many."}


def test_titles_that_only_repeat_a_name_are_not_sent() -> None:
    """They cost tokens at every step; an argument that is itself called `title` is no title."""

    async def method(self: Agent, title: str, properties: dict[str, int]) -> None:
        """Do it."""

    schemas = [found.parameters for found in (*Sampler.tools.values(), _defined(method))]
    for schema in schemas:
        properties = cast(dict[str, dict[str, Any]], schema["properties"])
        assert "title" not in schema
        assert all("title" not in described for described in properties.values())
    assert schemas[-1]["required"] == ["title", "properties"]


def test_the_model_reads_the_docstring_without_its_sections() -> None:
    """The description is the prose of the docstring."""
    assert _function("search").description == "Search the web.\n\nFinds pages, newest first."


def test_a_tool_without_parameters_has_an_empty_object_schema() -> None:
    """Providers want an object schema with properties, even without any."""
    schema = _function("clock").parameters
    assert (schema["type"], schema["properties"]) == ("object", {})


def test_what_the_decorator_says_wins() -> None:
    """Name, description, time-out and idempotence are options of `@tool`."""
    clock = _function("clock")
    assert (clock.method_name, clock.description, clock.timeout) == ("now", "Tell the time.", timedelta(seconds=5))
    assert clock.attempts == 3


def test_a_tool_is_tried_once_unless_it_is_idempotent() -> None:
    """A call that may have taken effect is never repeated unasked."""
    assert (_function("search").attempts, _function("search").timeout) == (1, timedelta(minutes=10))


def test_constraints_of_annotated_arguments_reach_the_schema_and_are_checked() -> None:
    """`Annotated` is honoured."""
    assert _property("shift", "by")["minimum"] == 1
    with pytest.raises(ArgumentError, match="by: Input should be greater than or equal to 1"):
        _function("shift").parse_arguments({"day": "2026-01-31", "by": 0})


def test_descriptions_of_annotated_arguments_reach_the_schema() -> None:
    """A description in `Annotated` counts where the docstring has none."""
    assert _property("shift", "by").get("description") == "days"

    class Described(Agent):
        @tool
        async def wait(self, day: Annotated[str, Field(description="not this")]) -> None:
            """Wait.

            Args:
                day: this
            """

    properties = cast(dict[str, dict[str, Any]], Described.tools["wait"].parameters["properties"])
    assert properties["day"]["description"] == "this"


def test_arguments_come_as_what_the_method_declares() -> None:
    """Nested models, dates and defaults arrive as objects, not as JSON."""
    parsed = _function("search").parse_arguments({"query": "q", "filters": [{"name": "n"}]})
    assert parsed == {"query": "q", "filters": [Filter(name="n")], "limit": 5, "kind": None}
    assert _function("shift").parse_arguments({"day": "2026-01-31"}) == {"day": date(2026, 1, 31), "by": 1}


def test_field_12_a_tool_without_parameters_takes_an_empty_object() -> None:
    """Field case 12: it runs on an empty value."""
    assert _function("clock").parse_arguments({}) == {}


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        ({"filters": []}, ["query: Field required"]),
        ({"query": 1, "filters": "x"}, ["query: ", "filters: "]),
        ({"query": "q", "filters": [{"name": "a"}, {}]}, ["filters.1.name: Field required"]),
        ({"query": "q", "filters": [], "page": 2}, ["page: Extra inputs are not permitted"]),
        ({"query": "q", "filters": [], "kind": "tv"}, ["kind: Input should be 'web' or 'news'"]),
        ([], ["arguments: "]),
        (None, ["arguments: "]),
        ("q", ["arguments: "]),
        (7, ["arguments: "]),
    ],
)
def test_field_12_wrong_arguments_are_an_error_that_names_the_field(arguments: JsonValue, named: list[str]) -> None:
    """Field case 12: the model learns which field is wrong, and how."""
    with pytest.raises(ArgumentError, match=r"^The arguments of search are not valid\. ") as raised:
        _function("search").parse_arguments(arguments)
    assert all(problem in str(raised.value) for problem in named)


def test_field_12_an_error_does_not_repeat_what_the_model_sent() -> None:
    """Field case 12: an error about a huge argument is not huge itself."""
    with pytest.raises(ArgumentError) as raised:
        _function("clock").parse_arguments({"junk": "j" * 100_000})
    assert len(str(raised.value)) < 200


def test_field_12_declared_objects_and_lists_are_decoded_once_and_strings_left_alone() -> None:
    """Field case 12: models send a list or object field as JSON text; text that is declared as text stays text."""
    parsed = _function("store").parse_arguments({"fields": '{"a": 1}', "note": '{"a": 1}'})
    assert parsed == {"fields": {"a": 1}, "note": '{"a": 1}'}
    decoded = _agent_tool("plain").parse_input({"query": "[]", "filters": '[{"name": "n"}]'})
    assert decoded == {"query": "[]", "filters": [{"name": "n", "limit": 10}]}


@pytest.mark.parametrize(
    ("fields", "problem"),
    [
        ('{"a": "x"}', "fields.a: Input should be a valid integer"),
        ('"{}"', "fields: Input should be a valid dictionary"),
        ("[]", "fields: Input should be a valid dictionary"),
        ("7", "fields: Input should be a valid dictionary"),
        ('{"a": 1', "fields: Input should be a valid dictionary"),
        ("[" * 100_000, "fields: Input should be a valid dictionary"),
        ("9" * 5_000, "fields: Input should be a valid dictionary"),
    ],
)
def test_field_12_text_that_does_not_decode_to_the_declared_field_is_an_error(fields: str, problem: str) -> None:
    """Field case 12: text is decoded once, and what is wrong with it is named."""
    with pytest.raises(ArgumentError, match=rf"^The arguments of store are not valid\. {re.escape(problem)}"):
        _function("store").parse_arguments({"fields": fields, "note": "n"})


def test_field_12_text_that_is_rejected_as_text_is_told_why() -> None:
    """Field case 12: text that happens to be JSON, but is too long, is too long."""

    async def method(self: Agent, note: Annotated[str, Field(max_length=5)]) -> None:
        """Do it."""

    with pytest.raises(ArgumentError, match="note: String should have at most 5 characters"):
        _defined(method).parse_arguments({"note": '{"a": 1}'})


def test_a_result_is_passed_on_as_json() -> None:
    """What a method returns is dumped as the type that it declares."""
    assert _function("shift").dump_result(date(2026, 2, 1)) == "2026-02-01"
    assert _function("store").dump_result({"filter": Filter(name="n"), "none": None}) == {
        "filter": {"name": "n", "limit": 10},
        "none": None,
    }


@pytest.mark.parametrize("value", [object(), b"\xff", pytest.param(10**5_000, id="huge")])
def test_field_33_a_result_that_is_not_json_is_an_error_for_the_model(value: object) -> None:
    """Field case 33: no endless retry; the text names the tool."""
    with pytest.raises(ResultError, match=r"^The tool store returned a value that is not JSON"):
        _function("store").dump_result(value)


def test_field_33_half_a_surrogate_pair_in_a_result_becomes_a_question_mark() -> None:
    """Field case 33: broken text is repaired where it comes in, and whole emoji stay."""
    assert _function("store").dump_result({"half": ["\ud83d, \ude00, 😀"]}) == {"half": ["?, ?, 😀"]}
    assert _function("search").dump_result(["\ud83d"]) == ["?"]


def test_field_33_a_result_that_holds_itself_is_an_error_for_the_model() -> None:
    """Field case 33: a circle has no JSON."""
    circle: list[object] = []
    circle.append(circle)
    with pytest.raises(ResultError, match=r"store returned a value that is not JSON"):
        _function("store").dump_result(circle)


@pytest.mark.parametrize("value", [float("nan"), {"ratio": float("inf")}])
def test_field_33_a_number_that_json_lacks_is_an_error_for_the_model(value: object) -> None:
    """Field case 33: never a silent null."""
    with pytest.raises(ResultError, match="store"):
        _function("store").dump_result(value)


async def _floats(self: Agent) -> list[float]:
    """Do it."""
    return []


async def _objects(self: Agent) -> dict[str, object]:
    """Do it."""
    return {}


async def _ratio(self: Agent) -> Ratio:
    """Do it."""
    return Ratio(value=0)


@pytest.mark.parametrize(
    ("method", "value"),
    [(_floats, [float("inf")]), (_objects, {"a": float("nan")}), (_ratio, Ratio(value=float("nan")))],
)
def test_field_33_a_number_that_json_lacks_is_an_error_whatever_is_declared(
    method: Callable[..., Awaitable[Any]], value: object
) -> None:
    """Field case 33: in a list of numbers, in anything, and in a model's field."""
    with pytest.raises(ResultError, match="method"):
        _defined(method).dump_result(value)


@pytest.mark.parametrize("depth", [50, 197, 240, 1_000])
def test_field_33_a_result_that_is_nested_too_deep_to_be_read_is_an_error_for_the_model(depth: int) -> None:
    """Field case 33: what is passed on can be read in a transcript; pydantic's parser stops at 200 levels in all."""
    value: JsonValue = []
    for _ in range(depth):
        value = [value]
    try:
        output = _function("store").dump_result(value)
    except ResultError:
        assert depth > 50
        return
    part = ToolPart(type="tool-store", tool_call_id="c", state="output-available", output=output)
    page = MessagesPage(messages=(UIMessage(id="m", role="assistant", parts=(part,)),), total=1)
    assert MessagesPage.model_validate_json(page.model_dump_json()) == page


def test_a_result_of_another_type_than_declared_is_an_error_for_the_model() -> None:
    """A method that breaks its own promise is found out."""
    with pytest.raises(ResultError, match="search"):
        _function("search").dump_result({"not": "a list"})


def test_a_result_over_the_limit_is_an_error_that_says_both_sizes() -> None:
    """The limit is in bytes of JSON; the largest result that fits passes."""
    fits = "x" * (MAX_RESULT_BYTES - 2)
    assert _function("store").dump_result(fits) == fits
    with pytest.raises(ResultError, match=r"1,048,577 bytes; the limit is 1,048,576"):
        _function("store").dump_result(f"{fits}y")
    with pytest.raises(ResultError, match="bytes"):
        _function("store").dump_result("é" * (MAX_RESULT_BYTES // 2))


@pytest.mark.parametrize(
    "name", ["two words", "v1.search", "поиск", "検索", "a" * 65, "a" * 90, "", "a\n", "tool/x", "émile"]
)
def test_field_14_a_tool_name_that_providers_refuse_is_refused_when_it_is_defined(name: str) -> None:
    """Field case 14: spaces, dots, non-Latin letters and 90 characters."""

    async def method(self: Agent) -> None:
        """Do it."""

    if name:
        with pytest.raises(AgentDefinitionError, match=re.escape(repr(name))):
            _defined(method, name=name)
    with pytest.raises(AgentDefinitionError, match="providers accept"):
        type("Defined", (Agent,), {name or " ": agent_tool("Other", description="Ask.", input=Question)})


@pytest.mark.parametrize("name", ["a", "A-b_9", "a" * 64])
def test_field_14_a_tool_name_that_providers_accept_is_kept(name: str) -> None:
    """Field case 14: nothing is cleaned, so nothing collapses."""

    async def method(self: Agent) -> None:
        """Do it."""

    assert _defined(method, name=name).name == name


def test_field_14_two_tools_of_one_name_are_refused() -> None:
    """Field case 14: the wrong one would run."""
    with pytest.raises(AgentDefinitionError, match="Twice has two tools named 'ask'"):

        class Twice(Agent):
            first = agent_tool("Other", description="Ask.", input=Question, name="ask")

            @tool
            async def ask(self) -> None:
                """Ask."""


async def _no_docstring(self: Agent) -> None: ...


async def _untyped(self: Agent, query) -> None:  # type: ignore[no-untyped-def]  # that is the point
    """Do it."""


async def _variadic(self: Agent, *queries: str) -> None:
    """Do it."""


async def _keywords(self: Agent, **queries: str) -> None:
    """Do it."""


async def _positional(self: Agent, query: str, /) -> None:
    """Do it."""


async def _unknown_type(self: Agent, query: "Missing") -> None:  # type: ignore[name-defined]  # noqa: F821  # the point
    """Do it."""


async def _no_schema(self: Agent, query: Callable[[], object] | re.Match[str]) -> None:
    """Do it."""


def _not_async(self: Agent) -> None:
    """Do it."""


async def _generator(self: Agent) -> Any:
    """Do it."""
    yield 1


@pytest.mark.parametrize(
    ("method", "text"),
    [
        (_no_docstring, "needs a docstring"),
        (_untyped, "'query' of the tool Defined.method needs a type"),
        (_variadic, "may not take"),
        (_keywords, "may not take"),
        (_positional, "may not take"),
        (_unknown_type, "Missing"),
        (_no_schema, "cannot be offered to a model"),
        (_not_async, "must be an `async def` method"),
        (_generator, "must be an `async def` method"),
    ],
)
def test_a_method_that_cannot_be_offered_is_refused_when_it_is_defined(
    method: Callable[..., Awaitable[Any]], text: str
) -> None:
    """The author learns which tool is wrong, and why, when the module is imported."""
    with pytest.raises(AgentDefinitionError, match=r"Defined\.method") as raised:
        _defined(method)
    assert text in str(raised.value)


@pytest.mark.parametrize("argument", ["query", "_query", "schema", "json", "copy", "model_config", "argument_0"])
def test_an_argument_may_have_any_name_that_python_allows(argument: str) -> None:
    """How the arguments are checked is no concern of the author's, nor are the names that pydantic uses itself."""
    namespace: dict[str, Any] = {}
    exec(f"async def method(self, {argument}: str) -> str:\n    'Do it.'", namespace)
    found = _defined(namespace["method"])
    assert found.parse_arguments({argument: "x"}) == {argument: "x"}
    assert (found.parameters["required"], found.parameters["properties"]) == (
        [argument],
        {argument: {"type": "string"}},
    )
    with pytest.raises(ArgumentError, match=f"{argument}: Field required"):
        found.parse_arguments({})


def test_in_10_the_input_of_an_agent_tool_is_its_models_schema() -> None:
    """IN-10: the schema is mandatory, and it is the model's."""
    schema = _agent_tool("ask").parameters
    assert (schema["type"], schema["required"]) == ("object", ["query"])


def test_in_10_the_input_of_an_agent_tool_is_validated() -> None:
    """IN-10, field case 12: errors name the field; defaults are filled in."""
    assert _agent_tool("ask").parse_input({"query": "q"}) == {"query": "q", "filters": []}
    with pytest.raises(ArgumentError, match=r"^The arguments of ask are not valid\. filters\.0\.name: Field required"):
        _agent_tool("ask").parse_input({"query": "q", "filters": [{}]})


@pytest.mark.parametrize("value", ["nan", "inf", "-Infinity"])
def test_field_33_an_input_with_a_number_that_json_lacks_is_an_error(value: str) -> None:
    """Field case 33: such text is a number to pydantic, and would reach the run as null."""
    found = agent_tool("Sampler", description="Ask.", input=Ratio, name="ask")
    with pytest.raises(ArgumentError, match="value"):
        found.parse_input({"value": value})


def test_an_agent_tool_is_named_after_its_attribute_unless_it_is_named() -> None:
    """Field case 14: the agent's display name is never the tool's name."""
    assert (_agent_tool("ask").name, _agent_tool("ask_other").name) == ("ask", "ask_other")
    assert "other" not in Sampler.tools


def test_di_23_display_is_what_was_given_and_absent_without() -> None:
    """DI-23: displayName and icon; absent if none given."""
    assert _agent_tool("ask").display == Display(icon="?")
    assert _agent_tool("ask_other").display == Display(name="Other")
    assert _agent_tool("plain").display is None


def test_an_agent_tool_knows_its_agent_by_class_or_by_name() -> None:
    """Both forms name the registered type."""
    by_class = agent_tool(Sampler, description="Ask.", input=Question)
    assert (by_class.agent_type, _agent_tool("ask").agent_type) == ("Sampler", "Sampler")


def test_rf_07_without_an_output_type_nothing_is_checked() -> None:
    """RF-07, RF-08: an agent tool has an output type only where one is declared."""
    assert _agent_tool("plain").output_type is None
    assert _agent_tool("ask").output_type is not None
