"""HTTP in, HTTP out: each route translates one call and holds no rule of its own."""

from typing import Annotated

from fastapi import Depends, Path, Query, Request

from flashruntime.service.services import Services
from flashruntime.service.watching import Watching

MAX_ID = 2**53
MAX_PAGE = 10_000
MAX_ID_CHARACTERS = 256


async def services_of(request: Request) -> Services:
    """Return the services that the application holds."""
    services: Services = request.app.state.services
    return services


async def watching_of(request: Request) -> Watching:
    """Return what answers from outside of the ledger's thread."""
    watching: Watching = request.app.state.watching
    return watching


Running = Annotated[Services, Depends(services_of)]
Watcher = Annotated[Watching, Depends(watching_of)]
Id = Annotated[str, Path(max_length=MAX_ID_CHARACTERS)]
Limit = Annotated[int, Query(ge=1, le=MAX_PAGE)]
Number = Annotated[int | None, Query(ge=0, le=MAX_ID)]
