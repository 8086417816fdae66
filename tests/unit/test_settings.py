"""What a process reads from its environment."""

import os
from datetime import timedelta
from pathlib import Path

import pytest
from pydantic import SecretStr, ValidationError

from turnkeeper.settings import Settings

SECRET = "whsec_MDEyMzQ1Njc4OTAxMjM0NTY3ODkwMTIzNDU2Nzg5MDE="


@pytest.fixture(autouse=True)
def _clean_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in os.environ:
        if name.startswith("TURNKEEPER_"):
            monkeypatch.delenv(name)


def test_without_an_environment_everything_has_a_default() -> None:
    """`make up` works in a bare checkout."""
    settings = Settings()
    assert settings.agents == ("examples.research_desk",)
    assert (settings.task_queue, settings.data_dir) == ("turnkeeper", Path(".data"))
    assert (settings.event_log, settings.event_retention) == ("", timedelta(days=3))
    assert (settings.api_host, settings.api_port) == ("127.0.0.1", 8000)
    assert (settings.temporal_port, settings.temporal_ui_port) == (7233, 8233)
    assert (settings.workflow_cache, settings.shutdown_grace_seconds) == (1000, 10.0)


def test_every_setting_is_read_from_its_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    """`TURNKEEPER_<NAME>`, whatever its type."""
    given = {
        "TASK_QUEUE": "q",
        "DATA_DIR": "/tmp/data",
        "EVENT_LOG": "redis://localhost/1",
        "EVENT_RETENTION": "P1DT1H",
        "API_HOST": "localhost",
        "API_PORT": "9000",
        "TEMPORAL_PORT": "9001",
        "TEMPORAL_UI_PORT": "9002",
        "WORKFLOW_CACHE": "0",
        "SHUTDOWN_GRACE_SECONDS": "0.5",
        "AGENTS": "mine",
        "POLL": "q, gpu",
        "WEBHOOK_SECRET": f"{SECRET} {SECRET}",
        "WEBHOOK_PRIVATE_ADDRESSES": "true",
    }
    for name, value in given.items():
        monkeypatch.setenv(f"TURNKEEPER_{name}", value)
    assert Settings().model_dump() == {
        "agents": ("mine",),
        "task_queue": "q",
        "poll": ("q", "gpu"),
        "data_dir": Path("/tmp/data"),
        "event_log": "redis://localhost/1",
        "event_retention": timedelta(days=1, hours=1),
        "api_host": "localhost",
        "api_port": 9000,
        "temporal_port": 9001,
        "temporal_ui_port": 9002,
        "workflow_cache": 0,
        "shutdown_grace_seconds": 0.5,
        "webhook_secret": (SecretStr(SECRET), SecretStr(SECRET)),
        "webhook_private_addresses": True,
    }


@pytest.mark.parametrize(
    "secret", ["secret-text", "whsec_!", "whsec_not base64!", "whsec_c2hvcnQ=", f"{SECRET} whsec_c2hvcnQ="]
)
def test_a_webhook_secret_that_is_none_is_refused_without_being_shown(
    monkeypatch: pytest.MonkeyPatch, secret: str
) -> None:
    """Nor is one that is kept."""
    monkeypatch.setenv("TURNKEEPER_WEBHOOK_SECRET", secret)
    with pytest.raises(ValidationError, match="at least 24 random bytes") as raised:
        Settings()
    monkeypatch.setenv("TURNKEEPER_WEBHOOK_SECRET", SECRET)
    assert secret not in str(raised.value)
    assert SECRET not in repr(Settings())


@pytest.mark.parametrize(
    ("value", "agents"),
    [("one", ("one",)), ("one,two.three", ("one", "two.three")), (" one , two ,", ("one", "two")), ("", ())],
)
def test_agents_are_modules_separated_by_commas(
    monkeypatch: pytest.MonkeyPatch, value: str, agents: tuple[str, ...]
) -> None:
    """Not JSON, which would be odd to write in a shell."""
    monkeypatch.setenv("TURNKEEPER_AGENTS", value)
    assert Settings().agents == agents


@pytest.mark.parametrize("host", ["127.0.0.1", "::1", "localhost"])
def test_a_loopback_address_is_accepted(host: str) -> None:
    """The API listens for this machine only."""
    assert Settings(api_host=host).api_host == host


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "", "192.168.0.7", "example.org", "127.0.0.1.example.org"])
def test_an_address_that_others_can_reach_is_refused(monkeypatch: pytest.MonkeyPatch, host: str) -> None:
    """There is no authentication yet, and the text says so."""
    monkeypatch.setenv("TURNKEEPER_API_HOST", host)
    with pytest.raises(ValidationError, match="the API has no authentication yet"):
        Settings()


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("API_PORT", "0"),
        ("API_PORT", "65536"),
        ("TEMPORAL_PORT", "http"),
        ("TEMPORAL_UI_PORT", "-1"),
        ("WORKFLOW_CACHE", "-1"),
        ("WORKFLOW_CACHE", "1"),
        ("SHUTDOWN_GRACE_SECONDS", "-0.1"),
        ("EVENT_RETENTION", "-P1D"),
        ("EVENT_RETENTION", "soon"),
    ],
)
def test_a_value_that_makes_no_sense_is_refused(monkeypatch: pytest.MonkeyPatch, name: str, value: str) -> None:
    """The process ends at its start, not at the first use."""
    monkeypatch.setenv(f"TURNKEEPER_{name}", value)
    with pytest.raises(ValidationError, match=name.lower()):
        Settings()


def test_settings_cannot_be_changed() -> None:
    """They are read once."""
    settings = Settings()
    with pytest.raises(ValidationError):
        settings.api_port = 1  # type: ignore[misc]  # that is the point
