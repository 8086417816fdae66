"""Serves the API: `python -m api`."""

import sys

import uvicorn

from api.app import create_app
from turnkeeper.errors import TurnkeeperError
from turnkeeper.settings import Settings


def main() -> int:
    """Serve until told to stop; returns the exit status."""
    settings = Settings()
    try:
        app = create_app(settings)
    except TurnkeeperError as error:
        print(f"api: {error}", file=sys.stderr)
        return 2
    uvicorn.run(app, host=settings.api_host, port=settings.api_port, log_level="info", access_log=False)
    return 0


if __name__ == "__main__":
    sys.exit(main())
