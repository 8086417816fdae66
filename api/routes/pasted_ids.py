"""Workflow ids pasted from the Temporal UI behind the API's address: `/{tenant}/{agent}/{name}/...`."""

from fastapi import APIRouter
from fastapi.responses import RedirectResponse

from turnkeeper.errors import NotFound
from turnkeeper.names import DEFAULT_TENANT

router = APIRouter(include_in_schema=False)


@router.get("/{tenant}/{path:path}")
async def follow_workflow_id(tenant: str, path: str) -> RedirectResponse:
    """Redirect a workflow id to the resource that it is the path of.

    Raises:
        NotFound: it is not one of this tenant's.
    """
    if tenant != DEFAULT_TENANT:
        raise NotFound(f"there is no tenant {tenant!r}")
    return RedirectResponse(f"/agents/{path}", status_code=307)
