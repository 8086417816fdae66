"""Connects to Temporal as Temporal's own environment configuration says."""

from collections.abc import Sequence

from temporalio.client import Client, Plugin
from temporalio.envconfig import ClientConfig

from turnkeeper.errors import Unavailable
from turnkeeper.payloads import data_converter
from turnkeeper.settings import Settings

DEFAULT_ADDRESS = "localhost:7233"


async def connect(settings: Settings, plugins: Sequence[Plugin] = ()) -> Client:
    """Return a client; the address, namespace, TLS and API key come from `TEMPORAL_...` or a profile file.

    Raises:
        Unavailable: Temporal does not answer.
    """
    config = ClientConfig.load_client_connect_config()
    config.setdefault("target_host", DEFAULT_ADDRESS)
    try:
        return await Client.connect(
            **config, data_converter=data_converter(settings.payloads_dir), plugins=list(plugins)
        )
    except RuntimeError as error:
        raise Unavailable(
            f"Temporal does not answer at {config['target_host']}: {error}. Is it running? "
            "`make up` starts one; TEMPORAL_ADDRESS names another."
        ) from error
