"""Serves the API: `python -m api`."""

import sys

import uvicorn

from api.app import create_app
from turnkeeper.errors import TurnkeeperError
from turnkeeper.settings import Settings

SHUTDOWN_PATIENCE = 3
"""Seconds that requests get when the process is told to stop; a feed of live events would go on for ever."""


def main() -> int:
    """Serve until told to stop; returns the exit status."""
    settings = Settings()
    try:
        app = create_app(settings)
    except TurnkeeperError as error:
        print(f"api: {error}", file=sys.stderr)
        return 2
    uvicorn.run(
        app,
        host=settings.api_host,
        port=settings.api_port,
        log_level="info",
        access_log=False,
        timeout_graceful_shutdown=SHUTDOWN_PATIENCE,
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
