"""How the embedded server's flags are made of its configuration file."""

from itertools import pairwise
from pathlib import Path

import pytest

from turnkeeper.dev_server import free_port, start_flags

ROOT = Path(__file__).parents[2]


@pytest.fixture
def config(tmp_path: Path) -> Path:
    """A configuration with each kind of value."""
    path = tmp_path / "temporal.yaml"
    path.write_text("log-level: error\nheadless: true\nlog-config: false\nport: 7233\npragma:\n  - a=1\n  - b=2\n")
    return path


def test_a_key_is_a_flag_a_list_repeats_it_and_true_stands_alone(config: Path) -> None:
    """The file says exactly what could be typed."""
    assert start_flags(config) == [
        *("--log-level", "error"),
        "--headless",
        *("--port", "7233"),
        *("--pragma", "a=1"),
        *("--pragma", "b=2"),
    ]


def test_an_override_wins_over_the_file(config: Path) -> None:
    """A single value is replaced, `False` removes a flag, and a new one is added."""
    flags = start_flags(config, {"log-level": "debug", "headless": False, "ip": "127.0.0.1"})
    assert flags[:2] == ["--log-level", "debug"]
    assert "--headless" not in flags
    assert flags[-2:] == ["--ip", "127.0.0.1"]


def test_an_overrides_list_is_added_to_the_files_list(config: Path) -> None:
    """A test adds a dynamic configuration value without repeating ours."""
    flags = start_flags(config, {"pragma": ["c=3"]})
    assert flags[-6:] == ["--pragma", "a=1", "--pragma", "b=2", "--pragma", "c=3"]


def test_the_file_is_read_anew_each_time(config: Path) -> None:
    """Overrides of one server never reach the next."""
    start_flags(config, {"pragma": ["c=3"]})
    assert "c=3" not in start_flags(config)


def test_our_own_configuration_registers_every_search_attribute() -> None:
    """A worker that sets an unregistered attribute fails every workflow task."""
    flags = start_flags(ROOT / "temporal-dev.yaml")
    registered = [value for flag, value in pairwise(flags) if flag == "--search-attribute"]
    assert sorted(registered) == [
        "TurnkeeperAgent=Keyword",
        "TurnkeeperInstance=Keyword",
        "TurnkeeperOutcome=Keyword",
        "TurnkeeperParentRunId=Keyword",
        "TurnkeeperRunId=Keyword",
        "TurnkeeperTenant=Keyword",
    ]


def test_a_free_port_can_be_listened_on() -> None:
    """The kernel chooses it."""
    assert 1024 <= free_port() <= 65535
