"""Errors as `application/problem+json` (RFC 9457), in one place."""

from http import HTTPStatus
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse, Response
from starlette.exceptions import HTTPException

from turnkeeper.errors import (
    Conflict,
    InvalidRequest,
    MilestoneMissed,
    NotFound,
    TooLarge,
    TurnkeeperError,
    Unavailable,
)

NOT_FOUND = "There is no such thing here, or it is not yours."
"""The same text for both, so that nobody learns which ids exist (field case 32)."""

_STATUSES: dict[type[TurnkeeperError], int] = {
    InvalidRequest: 422,
    NotFound: 404,
    Conflict: 409,
    MilestoneMissed: 409,
    TooLarge: 413,
    Unavailable: 503,
}


class OverLimit(TurnkeeperError):
    """A limit of the instance is reached for now."""


class ProblemResponse(JSONResponse):
    """A problem document."""

    media_type = "application/problem+json"


def problem(status: int, detail: str, **more: Any) -> ProblemResponse:
    """Return the response that tells of an error.

    Args:
        status: the HTTP status.
        detail: what was wrong, where, and what to do.
        more: further members of the document.
    """
    document = {"type": "about:blank", "title": HTTPStatus(status).phrase, "status": status, "detail": detail, **more}
    return ProblemResponse(document, status_code=status, headers={"Retry-After": "2"} if status in (429, 503) else None)


def install_error_handlers(app: FastAPI) -> None:
    """Have every error answered with a problem document."""

    @app.exception_handler(RequestValidationError)
    async def invalid(_: Request, error: RequestValidationError) -> ProblemResponse:
        errors = [{"where": list(found["loc"]), "problem": found["msg"]} for found in error.errors()]
        first = errors[0]
        where = ".".join(str(place) for place in first["where"])
        return problem(422, f"{where}: {first['problem']}", errors=errors)

    @app.exception_handler(HTTPException)
    async def http(_: Request, error: HTTPException) -> Response:
        if error.status_code == HTTPStatus.NO_CONTENT:
            return Response(status_code=HTTPStatus.NO_CONTENT)  # How a dependency says that there is nothing.
        return problem(error.status_code, NOT_FOUND if error.status_code == 404 else str(error.detail))

    @app.exception_handler(OverLimit)
    async def over_limit(_: Request, error: OverLimit) -> ProblemResponse:
        return problem(429, str(error))

    @app.exception_handler(TurnkeeperError)
    async def known(_: Request, error: TurnkeeperError) -> ProblemResponse:
        status = _STATUSES.get(type(error), 500)
        return problem(status, NOT_FOUND if status == 404 else str(error))

    @app.exception_handler(Exception)
    async def unknown(_: Request, error: Exception) -> ProblemResponse:
        return problem(500, f"Something went wrong here ({type(error).__name__}); the log of the API says more.")
