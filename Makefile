# Every target bootstraps its own virtual environment from a bare python3 (3.11 or newer).

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
INSTALLED := $(VENV)/installed
PATHS := src workflows activities api examples deploy bench tests worker.py

.PHONY: setup demo up test lint bench format lock histories

setup: $(INSTALLED)

$(INSTALLED): requirements.lock pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(0 if sys.version_info >= (3, 11) else "Turnkeeper needs Python 3.11 or newer; set PYTHON=python3.12, for example")'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements.lock
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation -e .
	@touch $@

demo: $(INSTALLED)
	@$(BIN)/python -m examples.research_desk.demo

up: $(INSTALLED)
	@$(BIN)/python -m deploy.local_stack

# Tests that make much work have the machine to themselves. Of the others two files run at a time, each with a Temporal
# server and a worker of its own: most tests wait more than they work.
TWO_AT_A_TIME := -n 2 --dist loadfile

# The second pass keeps no workflow between its tasks: each task replays the whole history, which finds what is not
# deterministic.
test: lint
	$(BIN)/python -m pytest $(TWO_AT_A_TIME) -m "not volume"
	$(BIN)/python -m pytest -m volume
	TURNKEEPER_WORKFLOW_CACHE=0 $(BIN)/python -m pytest $(TWO_AT_A_TIME) tests/workflows -m "not volume and not cached"

lint: $(INSTALLED)
	$(BIN)/ruff format --check $(PATHS)
	$(BIN)/ruff check $(PATHS)
	$(BIN)/lint-imports
	$(BIN)/mypy
	$(BIN)/mypy tests

bench: $(INSTALLED)
	@$(BIN)/python -m bench

format: $(INSTALLED)
	$(BIN)/ruff format $(PATHS)
	$(BIN)/ruff check --fix $(PATHS)

# Records the histories that the replay tests replay anew; say why in the commit.
histories: $(INSTALLED)
	$(BIN)/python -m pytest tests/replay --record-histories

lock: $(INSTALLED)
	$(BIN)/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-header --no-emit-index-url \
		--all-extras --group test -o requirements.lock pyproject.toml
