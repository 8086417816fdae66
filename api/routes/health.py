"""Whether the API, and what is behind it, can serve."""

from fastapi import APIRouter, Response

from api.dependencies import ClientDependency
from api.schemas import Health
from turnkeeper.errors import Unavailable

router = APIRouter(tags=["health"])


@router.get("/healthz")
async def healthz() -> Health:
    """Tell that this process answers."""
    return Health(status="ok")


@router.get("/readyz", responses={503: {"model": Health}})
async def readyz(client: ClientDependency, response: Response) -> Health:
    """Tell whether Temporal answers and a worker polls."""
    try:
        if await client.has_worker():
            return Health(status="ok")
    except Unavailable as error:
        response.status_code = 503
        return Health(status="no Temporal", detail=str(error))
    response.status_code = 503
    return Health(status="no worker", detail="No worker polls the task queue; turns wait until one does.")
