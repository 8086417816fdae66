"""The rules of the house that no linter knows."""

import ast
import importlib
import inspect
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent.parent
FOLDERS = ("activities", "api", "bench", "deploy", "examples", "src", "workflows")
SOURCES = [*(path for folder in FOLDERS for path in sorted((ROOT / folder).rglob("*.py"))), ROOT / "worker.py"]
TESTS = sorted((ROOT / "tests").rglob("*.py"))
FORBIDDEN_NAMES = {"utils", "helpers", "common", "manager", "misc", "data", "info"}


def identify(path: Path) -> str:
    """Return a path as a test id."""
    return str(path.relative_to(ROOT))


def functions_of(path: Path) -> list[ast.FunctionDef | ast.AsyncFunctionDef]:
    """Return the functions of a file."""
    tree = ast.parse(path.read_text())
    return [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]


def length_of(function: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    """Return a function's lines without its docstring."""
    first = function.body[0]
    has_docstring = ast.get_docstring(function) is not None
    docstring = (first.end_lineno or 0) - first.lineno + 1 if has_docstring else 0
    return (function.end_lineno or 0) - function.lineno + 1 - docstring


@pytest.mark.parametrize("path", SOURCES, ids=identify)
def test_files_and_functions_are_short(path: Path) -> None:
    """House rule 1: 400 lines a file, 50 a function."""
    assert len(path.read_text().splitlines()) <= 400
    assert [function.name for function in functions_of(path) if length_of(function) > 50] == []


@pytest.mark.parametrize("path", TESTS, ids=identify)
def test_test_files_are_short_and_their_tests_are_sentences(path: Path) -> None:
    """House rules 1 and 11: 600 lines, a docstring a test, no sleeping for time to pass."""
    assert len(path.read_text().splitlines()) <= 600
    tests = [function for function in functions_of(path) if function.name.startswith("test_")]
    assert [test.name for test in tests if not ast.get_docstring(test)] == []
    assert "time.sleep(" not in path.read_text().replace('"time.sleep("', "")


@pytest.mark.parametrize("path", SOURCES, ids=identify)
def test_modules_are_named_for_what_they_hold(path: Path) -> None:
    """House, names: no `utils` and the like."""
    assert path.stem not in FORBIDDEN_NAMES


@pytest.mark.parametrize(
    "path", [path for path in SOURCES if path.parent.name not in ("bench", ROOT.name)], ids=identify
)
def test_nobody_imports_the_composition_root(path: Path) -> None:
    """House, plan: `worker.py` is the only place where all meet; benchmarks and tests start workers as it does."""
    imported = {
        name
        for node in ast.walk(ast.parse(path.read_text()))
        for name in (
            [alias.name for alias in node.names]
            if isinstance(node, ast.Import)
            else [node.module or ""]
            if isinstance(node, ast.ImportFrom)
            else []
        )
    }
    assert "worker" not in imported


def test_importing_the_workflows_loads_no_litellm_no_fastapi_and_no_author_code() -> None:
    """Issue A: asked of a fresh interpreter, so that indirect imports count too."""
    program = (
        "import sys, workflows.plugin\n"
        "found = {name.partition('.')[0] for name in sys.modules} & {'litellm', 'fastapi', 'starlette', 'examples'}\n"
        "sys.exit(', '.join(sorted(found)) or 0)"
    )
    environment = {"PYTHONPATH": f"{ROOT}:{ROOT / 'src'}"}
    finished = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True)
    assert finished.returncode == 0, finished.stderr


def test_importing_the_api_loads_no_litellm_and_no_workflow() -> None:
    """House, plan: the API speaks to workflows by registered name."""
    program = (
        "import sys, api.app\n"
        "found = {name.partition('.')[0] for name in sys.modules} & {'litellm', 'workflows', 'activities'}\n"
        "sys.exit(', '.join(sorted(found)) or 0)"
    )
    environment = {"PYTHONPATH": f"{ROOT}:{ROOT / 'src'}"}
    finished = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True)
    assert finished.returncode == 0, finished.stderr


def test_the_public_face_is_all_there_is() -> None:
    """House rule 9; ruff keeps it sorted."""
    package = importlib.import_module("turnkeeper")
    public = {
        name
        for name, value in vars(package).items()
        if not name.startswith("_") and not inspect.ismodule(value) and name != "annotations"
    }
    assert set(package.__all__) == public


def test_the_lock_file_holds_hashes_and_no_address() -> None:
    """Standards: pinned, hashed, from whatever index the user has."""
    lock = (ROOT / "requirements.lock").read_text()
    pins = [line for line in lock.splitlines() if "==" in line and not line.startswith(" ")]
    assert all("--hash=sha256:" in lock.split(pin, 1)[1][:200] for pin in pins)
    assert "://" not in lock
