"""The live page at `/`, its files, and what it asks for."""

import hashlib
from functools import cache
from importlib import resources
from typing import Annotated

from fastapi import APIRouter, Header, Path, Query, Request, Response

from flashruntime.errors import NotFound
from flashruntime.service import api_page
from flashruntime.service.routes import MAX_ID, Id, Watcher

PACKAGE = "flashruntime.service"
MAX_HISTORY = 5_000
TYPES = {
    "html": "text/html; charset=utf-8",
    "css": "text/css; charset=utf-8",
    "js": "text/javascript; charset=utf-8",
    "svg": "image/svg+xml",
}
# The page holds no secret: whoever may open it still needs a token for what it shows.
SAFE = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; "
        "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; "
        "require-trusted-types-for 'script'; trusted-types 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-cache",
}

router = APIRouter(include_in_schema=False)
api = APIRouter(tags=["page"])
History = Annotated[int, Query(ge=1, le=MAX_HISTORY)]
Index = Annotated[int, Path(ge=0, le=MAX_ID)]
Seen = Annotated[str | None, Header()]


@cache
def files() -> dict[str, tuple[bytes, str]]:
    """Return the page's files by name, each with its ETag."""
    folder = resources.files(PACKAGE).joinpath("page")
    found = {item.name: item.read_bytes() for item in folder.iterdir() if item.is_file()}
    return {
        name: (data, f'"{hashlib.sha256(data).hexdigest()[:32]}"')
        for name, data in found.items()
        if name.rpartition(".")[2] in TYPES
    }


@router.get("/")
async def page(if_none_match: Seen = None) -> Response:
    """Return the live page."""
    return _file("index.html", if_none_match)


@router.get("/docs")
async def docs(request: Request) -> Response:
    """Return the description of all calls as a page."""
    text = api_page.page(request.app.openapi())
    return Response(text, headers=SAFE, media_type=TYPES["html"])


@router.get("/page/{name}")
async def file(name: str, if_none_match: Seen = None) -> Response:
    """Return a file of the live page."""
    return _file(name, if_none_match)


@api.get("/overview", response_class=Response)
async def overview(watching: Watcher) -> Response:
    """Return the coordinator and its newest and open jobs: one cheap call for a page."""
    return _json(await watching.overview())


@api.get("/history", response_class=Response)
async def history(watching: Watcher, job_id: str | None = None, limit: History = 2_000) -> Response:
    """Return the newest events, in order, without those of created tasks and the ends of logs."""
    return _json(await watching.history(job_id, limit))


@api.get("/jobs/{job_id}/grid", response_class=Response)
async def grid(job_id: Id, watching: Watcher) -> Response:
    """Return a job's tasks by index, one character for the state and one for the attempts."""
    return _json(await watching.grid(job_id))


@api.get("/jobs/{job_id}/tasks/{index}/events", response_class=Response)
async def task_events(
    job_id: Id, index: Index, watching: Watcher, limit: History = 1_000
) -> Response:
    """Return the first events of a task, in order, without the ends of logs."""
    return _json(await watching.task_events(job_id, index, limit))


def _json(text: str) -> Response:
    return Response(text, media_type="application/json", headers={"Cache-Control": "no-store"})


def _file(name: str, seen: str | None) -> Response:
    found = files().get(name)
    if found is None:
        raise NotFound(f"the live page has no file {name!r}")
    data, etag = found
    headers = {**SAFE, "ETag": etag}
    if seen == etag:
        return Response(status_code=304, headers=headers)
    return Response(data, headers=headers, media_type=TYPES[name.rpartition(".")[2]])
