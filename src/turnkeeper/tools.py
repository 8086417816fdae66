"""Tools that an agent's model may call: `@tool` methods and `agent_tool(...)` attributes."""

import contextlib
import inspect
import json
import re
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any, TypeVar, get_type_hints, overload

from docstring_parser import parse as parse_docstring
from pydantic import BaseModel, ConfigDict, Field, JsonValue, TypeAdapter, ValidationError, create_model
from pydantic.errors import PydanticSchemaGenerationError, PydanticUserError
from pydantic_core import PydanticSerializationError

from turnkeeper.errors import AgentDefinitionError
from turnkeeper.json_values import clean_json, refuse_non_finite
from turnkeeper.names import TOOL_NAME_PATTERN
from turnkeeper.runs import Display

if TYPE_CHECKING:
    from turnkeeper.agents import Agent
    from turnkeeper.detached import Detached

MethodT = TypeVar("MethodT", bound=Callable[..., Any])

DEFAULT_TIMEOUT = timedelta(minutes=10)
IDEMPOTENT_ATTEMPTS = 3
MAX_RESULT_BYTES = 1024 * 1024
"""The largest result of a tool, as JSON; more is an error that the model can read."""

_TOOL_OPTIONS = "__turnkeeper_tool__"


class ArgumentError(ValueError):
    """The arguments of a call do not fit the tool; the text is for the model."""


class ResultError(ValueError):
    """A tool returned something that cannot be passed on; the text is for the model."""


@dataclass(frozen=True)
class _ToolOptions:
    name: str | None
    description: str | None
    timeout: timedelta
    idempotent: bool


@dataclass(frozen=True)
class FunctionTool:
    """A method that the model may call."""

    name: str
    description: str
    method_name: str
    arguments_model: type[BaseModel]
    result_type: TypeAdapter[Any]
    timeout: timedelta
    idempotent: bool

    @property
    def attempts(self) -> int:
        """How often a lost worker's call may be tried: once, unless it is declared harmless to repeat."""
        return IDEMPOTENT_ATTEMPTS if self.idempotent else 1

    @property
    def parameters(self) -> dict[str, JsonValue]:
        """The JSON schema of the arguments."""
        return _parameters_of(self.arguments_model)

    def parse_arguments(self, arguments: JsonValue) -> dict[str, Any]:
        """Return the keyword arguments for the method.

        Raises:
            ArgumentError: they do not fit; the text names each field.
        """
        parsed = _validate_arguments(self.name, self.arguments_model, arguments)
        fields = type(parsed).model_fields
        return {str(field.alias): getattr(parsed, name) for name, field in fields.items()}

    def dump_result(self, value: Any) -> JsonValue:
        """Return what the method returned as JSON.

        Raises:
            ResultError: it is not JSON, or larger than `MAX_RESULT_BYTES`.
        """
        try:
            # Looked for before pydantic makes JSON of them, which turns them into null without a word.
            refuse_non_finite(self.result_type.dump_python(value, warnings=False))
            result = clean_json(self.result_type.dump_python(value, mode="json", warnings="error"))
            size = len(json.dumps(result, ensure_ascii=False).encode())
        except (PydanticSerializationError, RecursionError, ValueError) as error:
            raise ResultError(f"The tool {self.name} returned a value that is not JSON: {error}") from error
        if size > MAX_RESULT_BYTES:
            raise ResultError(
                f"The tool {self.name} returned {size:,} bytes; the limit is {MAX_RESULT_BYTES:,}. Ask it for less."
            )
        return result


@dataclass(frozen=True)
class AgentTool:
    """Another agent that the model may call as a tool; made by `agent_tool`."""

    agent: "type[Agent] | str"
    description: str
    input_model: type[BaseModel]
    output_type: TypeAdapter[Any] | None
    display: Display | None
    name: str = ""
    """The tool's name: given, or the attribute that it is assigned to."""
    detached: "Detached | bool" = False
    """How its runs are watched that nobody awaits, or False."""

    @property
    def agent_type(self) -> str:
        """The registered name of the agent."""
        return self.agent if isinstance(self.agent, str) else self.agent.agent_type

    @property
    def parameters(self) -> dict[str, JsonValue]:
        """The JSON schema of the input."""
        return _parameters_of(self.input_model)

    def parse_input(self, arguments: JsonValue) -> JsonValue:
        """Return the validated input as JSON.

        Raises:
            ArgumentError: it does not fit; the text names each field.
        """
        parsed = _validate_arguments(self.name, self.input_model, arguments)
        try:
            return clean_json(parsed.model_dump(mode="json", by_alias=True), "the input")
        except (PydanticSerializationError, RecursionError, ValueError) as error:
            raise ArgumentError(f"The arguments of {self.name} are not valid. {error}") from error


@overload
def tool(method: MethodT) -> MethodT: ...
@overload
def tool(
    *,
    name: str | None = None,
    description: str | None = None,
    timeout: timedelta = DEFAULT_TIMEOUT,
    idempotent: bool = False,
) -> Callable[[MethodT], MethodT]: ...
def tool(
    method: MethodT | None = None,
    *,
    name: str | None = None,
    description: str | None = None,
    timeout: timedelta = DEFAULT_TIMEOUT,
    idempotent: bool = False,
) -> MethodT | Callable[[MethodT], MethodT]:
    """Offer an `async` method of an agent to its model.

    Args:
        method: the method, when used without parentheses.
        name: the tool's name; the method's by default.
        description: what the model reads; the docstring without its argument section by default.
        timeout: how long one attempt may take before the model is told that it was interrupted.
        idempotent: whether the call may be repeated after a lost worker (three attempts, one idempotency key). A call
            that is not idempotent is never repeated: the model is told that it may have taken effect.
    """
    options = _ToolOptions(name=name, description=description, timeout=timeout, idempotent=idempotent)

    def mark(marked: MethodT) -> MethodT:
        setattr(marked, _TOOL_OPTIONS, options)
        return marked

    return mark if method is None else mark(method)


def agent_tool(
    agent: "type[Agent] | str",
    *,
    description: str,
    input: type[BaseModel],
    output: Any = None,
    name: str | None = None,
    display_name: str | None = None,
    icon: str | None = None,
    detached: "Detached | bool" = False,
) -> AgentTool:
    """Offer another agent to this agent's model as a tool.

    Args:
        agent: the agent's class, or its registered name where the class is not defined yet (itself, for example).
        description: what the model reads.
        input: the pydantic model of the input; mandatory (IN-10).
        output: the type of the structured output. Without one the model gets the run's summary (RF-07); with one it
            gets the validated output, and an output that does not fit is a failure (RF-08 to RF-10).
        name: the tool's name; the attribute's by default.
        display_name: how user interfaces call the runs.
        icon: how user interfaces depict them.
        detached: let the model go on without the run's result; it gets the run's id, and the end is told as
            `Detached` says. `on_finish` is then a method's name.
    """
    return AgentTool(
        agent=agent,
        description=description,
        input_model=input,
        output_type=None if output is None else TypeAdapter(output),
        display=Display(name=display_name, icon=icon) if display_name or icon else None,
        name=name or "",
        detached=detached,
    )


def function_tool_of(owner: str, method_name: str, method: Callable[..., Any]) -> FunctionTool | None:
    """Return the tool that a method was marked as, or None.

    Raises:
        AgentDefinitionError: its signature cannot be offered to a model.
    """
    options: _ToolOptions | None = getattr(method, _TOOL_OPTIONS, None)
    if options is None:
        return None
    where = f"{owner}.{method_name}"
    if not inspect.iscoroutinefunction(method):
        raise AgentDefinitionError(f"the tool {where} must be an `async def` method")
    documentation = parse_docstring(inspect.getdoc(method) or "")
    described = {parameter.arg_name: parameter.description for parameter in documentation.params}
    description = options.description or "\n\n".join(
        text for text in (documentation.short_description, documentation.long_description) if text
    )
    if not description:
        raise AgentDefinitionError(f"the tool {where} needs a docstring or a description: its model reads it")
    try:
        hints = get_type_hints(method, include_extras=True)
        arguments_model = _arguments_model(where, method, hints, described)
        result_type = TypeAdapter(hints.get("return", Any))
    except (NameError, TypeError, PydanticSchemaGenerationError, PydanticUserError) as error:
        raise AgentDefinitionError(
            f"the signature of the tool {where} cannot be offered to a model: {error}"
        ) from error
    return FunctionTool(
        name=options.name or method_name,
        description=description,
        method_name=method_name,
        arguments_model=arguments_model,
        result_type=result_type,
        timeout=options.timeout,
        idempotent=options.idempotent,
    )


def check_tool_name(owner: str, name: str) -> None:
    """Refuse a tool name that a provider would refuse (field case 14).

    Raises:
        AgentDefinitionError: it is not 1 to 64 letters, digits, `_` or `-`.
    """
    if not TOOL_NAME_PATTERN.fullmatch(name):
        raise AgentDefinitionError(
            f"{owner} has a tool named {name!r}; model providers accept 1 to 64 of A-Z a-z 0-9 _ and -. "
            "Give it another name with `name=`."
        )


def _arguments_model(
    where: str, method: Callable[..., Awaitable[Any]], hints: dict[str, Any], described: dict[str, str | None]
) -> type[BaseModel]:
    fields: dict[str, Any] = {}
    for parameter in list(inspect.signature(method).parameters.values())[1:]:
        if parameter.kind not in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY):
            raise AgentDefinitionError(f"the tool {where} may not take *args, **kwargs or positional-only arguments")
        if parameter.name not in hints:
            raise AgentDefinitionError(f"the argument {parameter.name!r} of the tool {where} needs a type")
        # The argument's name is an alias, because pydantic models cannot have fields of some names.
        given: dict[str, Any] = {"alias": parameter.name}
        if parameter.default is not parameter.empty:
            given["default"] = parameter.default
        if described.get(parameter.name):
            given["description"] = described[parameter.name]
        fields[f"argument_{len(fields)}"] = (hints[parameter.name], Field(**given))
    model_name = re.sub(r"\W", "_", where)
    return create_model(model_name, __config__=ConfigDict(extra="forbid"), **fields)


def _parameters_of(model: type[BaseModel]) -> dict[str, JsonValue]:
    schema: dict[str, JsonValue] = model.model_json_schema()
    schema.pop("title", None)
    properties = schema.setdefault("properties", {})
    for described in properties.values() if isinstance(properties, dict) else ():
        if isinstance(described, dict):
            described.pop("title", None)
    return schema


def _validate_arguments(tool_name: str, model: type[BaseModel], arguments: JsonValue) -> BaseModel:
    try:
        return model.model_validate(arguments)
    except ValidationError as error:
        decoded = _decode_rejected_text(arguments, error)
        if decoded != arguments:
            return _validate_arguments(tool_name, model, decoded)
        problems = "; ".join(
            f"{'.'.join(str(place) for place in problem['loc']) or 'arguments'}: {problem['msg']}"
            for problem in error.errors(include_url=False, include_input=False)
        )
        raise ArgumentError(f"The arguments of {tool_name} are not valid. {problems}") from error


def _decode_rejected_text(arguments: JsonValue, error: ValidationError) -> JsonValue:
    """Return `arguments` with objects and lists in place of fields that hold them as JSON text (field case 12).

    Only fields that were rejected as text are looked at: one that is declared as text keeps it, JSON or not.
    """
    if not isinstance(arguments, dict):
        return arguments
    decoded = dict(arguments)
    for problem in error.errors(include_url=False, include_input=False):
        name = problem["loc"][0] if problem["loc"] else None
        text = decoded.get(name) if isinstance(name, str) else None
        if not isinstance(name, str) or not isinstance(text, str) or problem["type"].startswith("string_"):
            continue
        with contextlib.suppress(RecursionError, ValueError):
            value = json.loads(text)
            decoded[name] = value if isinstance(value, dict | list) else text
    return decoded
