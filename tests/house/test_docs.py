"""What the documentation says, held against the code: its examples, its limits, its links, its routes."""

import ast
import importlib
import inspect
import pkgutil
import re
import sys
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import ModuleType
from typing import Any, TypeGuard

import pytest
from pydantic import BaseModel
from standardwebhooks.webhooks import Webhook, WebhookVerificationError

from api.app import create_app
from turnkeeper.agents import Agent, ChatAgent
from turnkeeper.registry import AgentRegistry
from turnkeeper.settings import Settings

ROOT = Path(__file__).parent.parent.parent
README = ROOT / "README.md"
AUTHORING = ROOT / "docs" / "authoring.md"
WEBHOOKS = ROOT / "docs" / "webhooks.md"
LIMITS = ROOT / "docs" / "limits.md"
PAGES = [README, *sorted((ROOT / "docs").glob("*.md"))]

BLOCK = re.compile(r"^ *```(\w*)\n(.*?)^ *```$", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\[[^\]]+\]\(([^)\s]+)\)")
HEADING = re.compile(r"^#+ (.+)$", re.MULTILINE)
VALUE = re.compile(r"([\d,.]+) ?([A-Za-z]*)")
LIMIT_NAME = re.compile(r"`([a-z_]+(?:\.\w+)+)`")

UNITS: dict[str, int | timedelta] = {
    "": 1,
    "bytes": 1,
    "characters": 1,
    "levels": 1,
    "KiB": 1024,
    "MiB": 1024 * 1024,
    "s": timedelta(seconds=1),
    "min": timedelta(minutes=1),
    "days": timedelta(days=1),
}
FOLDERS_WITH_LIMITS = ("activities", "api", "deploy", "src/turnkeeper", "workflows")


def identify(path: Path) -> str:
    """Return a path as a test id."""
    return str(path.relative_to(ROOT))


def python_blocks(page: Path) -> list[str]:
    """Return the Python blocks of a page, each after as many empty lines as it has lines before it there."""
    text = page.read_text()
    return [
        "\n" * text.count("\n", 0, block.start(2)) + block[2] for block in BLOCK.finditer(text) if block[1] == "python"
    ]


BLOCKS = [
    pytest.param(page, count, id=f"{identify(page)}-{count}")
    for page in (README, AUTHORING)
    for count in range(1, len(python_blocks(page)) + 1)
]


@pytest.fixture
def module() -> Iterator[ModuleType]:
    """A fresh module for the code of a page, which pydantic finds by its name."""
    fresh = ModuleType("code_of_a_page")
    sys.modules[fresh.__name__] = fresh
    yield fresh
    del sys.modules[fresh.__name__]


def execute(page: Path, count: int, module: ModuleType) -> None:
    """Execute the first `count` blocks of a page in `module`."""
    for block in python_blocks(page)[:count]:
        exec(compile(block, str(page), "exec"), module.__dict__)


def agents_in(module: ModuleType) -> list[type[Agent]]:
    """Return the agent classes that a module defines."""
    return [value for value in vars(module).values() if _is_agent(value)]


def _is_agent(value: object) -> TypeGuard[type[Agent]]:
    return isinstance(value, type) and issubclass(value, Agent) and value not in (Agent, ChatAgent)


def limits() -> list[tuple[str, str]]:
    """Return the rows of the limits' tables that name a definition, as its dotted name and the printed value."""
    rows = [line.strip("|").split(" | ") for line in LIMITS.read_text().splitlines() if line.startswith("| ")]
    return [
        (name[1], cells[1].strip())
        for cells in rows
        if len(cells) == 4 and (name := LIMIT_NAME.fullmatch(cells[3].strip()))
    ]


def defined_value(dotted_name: str) -> Any:
    """Return what a dotted name stands for; past a field of a pydantic model it goes on in the field's JSON schema."""
    parts = dotted_name.split(".")
    place = next(end for end in range(len(parts), 0, -1) if _is_module(".".join(parts[:end])))
    value: Any = importlib.import_module(".".join(parts[:place]))
    for part in parts[place:]:
        if isinstance(value, dict | list):
            value = _found_in(value, part)
        elif inspect.isclass(value) and issubclass(value, BaseModel) and part in value.model_fields:
            value = value.model_json_schema()["properties"][part]
        else:
            value = getattr(value, part)
    return value


def _is_module(dotted_name: str) -> bool:
    try:
        pkgutil.resolve_name(f"{dotted_name}:")
    except ImportError:
        return False
    return True


def _found_in(schema: Any, key: str) -> Any:
    """Return the first value under `key`, however deep it is."""
    if isinstance(schema, dict) and key in schema:
        return schema[key]
    inner = schema.values() if isinstance(schema, dict) else schema if isinstance(schema, list) else ()
    return next((found for part in inner if (found := _found_in(part, key)) is not None), None)


def printed_value(text: str) -> object:
    """Return the value that a cell of a table prints: a number, bytes, a time, a pattern, or no limit."""
    if text == "no limit":
        return None
    if text.startswith("`"):
        return text.strip("`")
    match = VALUE.fullmatch(text)
    assert match, f"{text!r} is no value"
    number = float(match[1].replace(",", ""))
    return number * UNITS[match[2]]


def constants_with_limits() -> list[str]:
    """Return the dotted names of all module constants that are numbers or times."""
    paths = [path for folder in FOLDERS_WITH_LIMITS for path in sorted((ROOT / folder).rglob("*.py"))]
    return [name for path in [*paths, ROOT / "worker.py"] for name in _constants_of(path)]


def _constants_of(path: Path) -> list[str]:
    module = ".".join(path.relative_to(ROOT).with_suffix("").parts).removeprefix("src.")
    names = [
        target.id
        for node in ast.parse(path.read_text()).body
        if isinstance(node, ast.Assign) and _is_number_or_time(node.value)
        for target in node.targets
        if isinstance(target, ast.Name) and target.id.isupper()
    ]
    return [f"{module}.{name}" for name in names]


def _is_number_or_time(value: ast.expr) -> bool:
    if isinstance(value, ast.BinOp):
        return _is_number_or_time(value.left) and _is_number_or_time(value.right)
    if isinstance(value, ast.Call):
        return isinstance(value.func, ast.Name) and value.func.id == "timedelta"
    return isinstance(value, ast.Constant) and type(value.value) in (int, float)


def anchors_of(page: Path) -> set[str]:
    """Return the anchors that a page's headings get on GitHub."""
    headings = HEADING.findall(BLOCK.sub("", page.read_text()))
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize(("page", "count"), BLOCKS)
def test_the_code_of_a_page_defines_agents_as_far_as_one_has_read(page: Path, count: int, module: ModuleType) -> None:
    """Every Python block works as it is printed, after those before it on its page."""
    execute(page, count, module)
    agents = agents_in(module)
    assert agents
    registry = AgentRegistry(agents)
    assert {agent.agent_type for agent in agents} <= set(registry.agent_types)
    assert all(registry.profile(agent.agent_type) for agent in agents)


async def test_the_tests_on_the_authoring_page_pass(module: ModuleType) -> None:
    """What authors copy is right."""
    execute(AUTHORING, len(python_blocks(AUTHORING)), module)
    tests = [value for name, value in vars(module).items() if name.startswith("test_")]
    assert tests
    for test in tests:
        await test()


def test_the_authoring_page_prints_the_schema_that_its_example_has(module: ModuleType) -> None:
    """The JSON below the first tool is what a model reads."""
    execute(AUTHORING, len(python_blocks(AUTHORING)), module)
    printed = next(block[2] for block in BLOCK.finditer(AUTHORING.read_text()) if block[1] == "json")
    assert module.Librarian.tools["find_books"].parameters == ast.literal_eval(printed.replace("false", "False"))


@pytest.mark.parametrize("page", PAGES, ids=identify)
def test_python_appears_only_where_it_is_executed(page: Path) -> None:
    """No example escapes these tests: other pages have none, and every block says what it is."""
    languages = {block[1] for block in BLOCK.finditer(page.read_text())}
    executed = {"python"} if page in (README, AUTHORING, WEBHOOKS) else set()
    allowed = {"console", "json", "text", "yaml", "toml"} | executed
    assert languages <= allowed


def test_the_receiver_on_the_page_of_webhooks_knows_repeats_and_forgeries(module: ModuleType) -> None:
    """By the library that it names."""
    execute(WEBHOOKS, 1, module)
    secret, body, now = (
        "whsec_MDEyMzQ1Njc4OTAxMjM0NTY3ODkwMTIz",
        '{"type":"agent_tool_run.completed"}',
        datetime.now(UTC),
    )
    headers = {
        "webhook-id": "evt_1",
        "webhook-timestamp": str(int(now.timestamp())),
        "webhook-signature": Webhook(secret).sign("evt_1", now, body),
    }
    assert module.receive(secret, headers, body.encode()) == {"type": "agent_tool_run.completed"}
    assert module.receive(secret, headers, body.encode()) is None
    with pytest.raises(WebhookVerificationError):
        module.receive(secret, headers, body.replace("completed", "error").encode())


@pytest.mark.parametrize(("name", "printed"), limits())
def test_a_printed_limit_is_that_of_the_code(name: str, printed: str) -> None:
    """The table of limits cannot go stale."""
    value = defined_value(name)
    assert printed_value(printed) == (timedelta(seconds=value) if "_seconds" in name else value)


def test_every_row_of_the_tables_of_limits_is_compared() -> None:
    """A row whose definition cannot be read would be skipped; and each definition has one row."""
    sections = LIMITS.read_text().split("## Temporal's own limits")[0]
    rows = [line for line in sections.splitlines() if re.match(r"\| (?!limit |---)", line)]
    names = [name for name, _ in limits()]
    assert len(rows) == len(names) == len(set(names))


def test_every_number_and_time_among_the_constants_is_in_the_table_of_limits() -> None:
    """A new limit has a row in docs/limits.md."""
    assert set(constants_with_limits()) - {name for name, _ in limits()} == set()


@pytest.mark.parametrize("page", PAGES, ids=identify)
def test_relative_links_lead_somewhere(page: Path) -> None:
    """Files exist, and so do the headings within them."""
    for link in LINK.findall(BLOCK.sub("", page.read_text())):
        if "://" in link:
            continue
        file, _, anchor = link.partition("#")
        target = (page.parent / file).resolve() if file else page
        assert target.exists(), link
        assert not anchor or anchor in anchors_of(target), link


def test_every_route_has_its_place_on_the_http_page() -> None:
    """Method and path of every route in the OpenAPI document; and no other is promised."""
    paths = create_app(Settings(), registry=AgentRegistry([])).openapi()["paths"]
    routes = {f"{method.upper()} {path}" for path, methods in paths.items() for method in methods}
    promised = re.findall(r"`((?:GET|POST|PUT|PATCH|DELETE) /[^`]+)`", (ROOT / "docs" / "http.md").read_text())
    assert set(promised) == routes
