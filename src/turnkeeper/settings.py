"""What a process reads from its environment, once, at start.

The connection to Temporal is not here: it is Temporal's own environment configuration (`TEMPORAL_ADDRESS`,
`TEMPORAL_NAMESPACE`, `TEMPORAL_API_KEY`, `TEMPORAL_TLS...`, `TEMPORAL_PROFILE`).
"""

import base64
from datetime import timedelta
from pathlib import Path
from typing import Annotated

from pydantic import Field, SecretStr, field_validator
from pydantic_settings import BaseSettings, NoDecode, SettingsConfigDict

from turnkeeper.names import DEFAULT_TASK_QUEUE


class Settings(BaseSettings):
    """Settings, each from the environment variable `TURNKEEPER_<NAME>`."""

    model_config = SettingsConfigDict(
        env_prefix="TURNKEEPER_",
        frozen=True,
        hide_input_in_errors=True,  # It may be a secret.
    )

    agents: Annotated[tuple[str, ...], NoDecode] = ("examples.research_desk",)
    """The modules that hold the agent classes, separated by commas."""
    task_queue: str = DEFAULT_TASK_QUEUE
    """The task queue of the workflows, and of the activities of agents that name none."""
    poll: Annotated[tuple[str, ...], NoDecode] = ()
    """The task queues that a worker polls, separated by commas; by default its own and those that its agents name."""
    data_dir: Path = Path(".data")
    """Where large payloads, the development server's database and `up.json` are kept."""
    event_log: str = ""
    """The live log: `redis://...` for several machines; by default a SQLite file in the data folder."""
    event_retention: Annotated[timedelta, Field(gt=timedelta())] = timedelta(days=3)
    """How long the live log keeps what streamed; transcripts and outcomes are in Temporal."""
    webhook_secret: Annotated[tuple[SecretStr, ...], NoDecode] = ()
    """What completion webhooks are signed with: `whsec_...`, several separated by spaces while one replaces another."""
    webhook_private_addresses: bool = False
    """Whether webhooks may be posted to addresses inside; for development only."""
    api_host: str = "127.0.0.1"
    """The address that the API listens on. It has no authentication yet, so anything but loopback is refused."""
    api_port: Annotated[int, Field(ge=1, le=65535)] = 8000
    temporal_port: Annotated[int, Field(ge=1, le=65535)] = 7233
    """The port of the development server that `make up` and `make demo` start."""
    temporal_ui_port: Annotated[int, Field(ge=1, le=65535)] = 8233
    workflow_cache: Annotated[int, Field(ge=0)] = 1000
    """How many workflows a worker keeps in memory: 0, or at least 2, which the SDK demands."""
    shutdown_grace_seconds: Annotated[float, Field(ge=0)] = 10.0
    """How long a worker that was told to stop lets activities finish before it cancels them."""

    @property
    def payloads_dir(self) -> Path:
        """Where payloads that are too large for a history are kept; all processes must see the same folder."""
        return self.data_dir / "payloads"

    @field_validator("workflow_cache")
    @classmethod
    def _none_or_some(cls, size: int) -> int:
        if size == 1:
            raise ValueError("must be 0 or at least 2")
        return size

    @field_validator("agents", "poll", mode="before")
    @classmethod
    def _split(cls, value: object) -> object:
        return tuple(name.strip() for name in value.split(",") if name.strip()) if isinstance(value, str) else value

    @field_validator("webhook_secret", mode="before")
    @classmethod
    def _secrets(cls, value: object) -> object:
        return tuple(SecretStr(secret) for secret in value.split()) if isinstance(value, str) else value

    @field_validator("webhook_secret")
    @classmethod
    def _strong(cls, secrets: tuple[SecretStr, ...]) -> tuple[SecretStr, ...]:
        for secret in secrets:
            prefix, _, encoded = secret.get_secret_value().partition("_")
            try:
                key = base64.b64decode(encoded, validate=True) if prefix == "whsec" else b""
            except ValueError:
                key = b""
            if len(key) < 24:
                raise ValueError("a webhook secret is `whsec_` and the base64 of at least 24 random bytes")
        return secrets

    @field_validator("api_host")
    @classmethod
    def _only_loopback(cls, value: str) -> str:
        if value not in ("127.0.0.1", "::1", "localhost"):
            raise ValueError(
                "the API has no authentication yet and listens on loopback only: 127.0.0.1, ::1 or localhost"
            )
        return value
