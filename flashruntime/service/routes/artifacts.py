"""Artifacts: bytes under a key."""

import logging
import re
from typing import Annotated

from fastapi import APIRouter, Depends, Header, Request, Response
from fastapi.responses import StreamingResponse
from starlette.types import Send

from flashruntime.errors import ArtifactCorrupt
from flashruntime.protocol.tasks import ArtifactRecord
from flashruntime.service import paths  # noqa: F401 (registers the convertor `anytext`)
from flashruntime.service.blobs import stated_digest
from flashruntime.service.callers import require_key
from flashruntime.service.ranges import selected
from flashruntime.service.routes import Running
from flashruntime.service.strict import object_key

PATH = "/artifacts/{key:anytext}"
RAW_PREFIX = b"/v1alpha1/artifacts/"
router = APIRouter(tags=["artifacts"])
_KEY = {
    "parameters": [
        {
            "name": "key",
            "in": "path",
            "required": True,
            "description": "relative, with `/` between its segments; decoded once",
            "schema": {"type": "string", "minLength": 1, "maxLength": 1024},
        }
    ]
}
_WHOLE = re.compile("[0-9]{1,18}")
log = logging.getLogger(__name__)


class BlobResponse(StreamingResponse):
    """A stream of stored bytes that breaks off where they turn out to be damaged."""

    async def stream_response(self, send: Send) -> None:
        """Send all; what ends early is cut by the server, so that nobody takes it for whole."""
        try:
            await super().stream_response(send)
        except ArtifactCorrupt as error:
            log.error("download broken off: %s", error, extra={"event": "download_broken_off"})


async def _key_of(request: Request) -> str:
    return object_key(request.scope["raw_path"], RAW_PREFIX)


ObjectKey = Annotated[str, Depends(_key_of)]
IfNoneMatch = Annotated[str | None, Header()]


@router.put(PATH, openapi_extra=_KEY)
async def put(
    key: ObjectKey,
    request: Request,
    services: Running,
    x_sha256: Annotated[str | None, Header()] = None,
) -> ArtifactRecord:
    """Store the body under `key`; with X-Sha256 only if it hashes to that."""
    await require_key(request, key)
    digest = stated_digest(x_sha256)
    length = request.headers.get("content-length", "")
    declared = int(length) if _WHOLE.fullmatch(length) else None
    return await services.artifacts.put(key, request.stream(), declared, digest)


@router.head(PATH, openapi_extra=_KEY)
async def head(key: ObjectKey, services: Running, if_none_match: IfNoneMatch = None) -> Response:
    """Return size and digest of an object; a Range is of no effect here."""
    record = await services.artifacts.find(key)
    headers = _headers(record)
    if if_none_match is not None and _matches(if_none_match, headers["ETag"]):
        return Response(status_code=304, headers=headers)
    await services.artifacts.check(record)
    return Response(headers={**headers, "Content-Length": str(record.size_bytes)})


@router.get(PATH, response_class=BlobResponse, openapi_extra=_KEY)
async def get(
    key: ObjectKey,
    services: Running,
    if_none_match: IfNoneMatch = None,
    range_: Annotated[str | None, Header(alias="range")] = None,
    if_range: Annotated[str | None, Header()] = None,
) -> Response:
    """Return the bytes of an object, or a range of them; the ETag is their sha256."""
    record = await services.artifacts.find(key)
    headers = _headers(record)
    if if_none_match is not None and _matches(if_none_match, headers["ETag"]):
        return Response(status_code=304, headers=headers)
    wanted = range_ if if_range in {None, headers["ETag"]} else None
    part = selected(wanted, record.size_bytes)
    start, end = part or (0, record.size_bytes)
    headers["Content-Length"] = str(end - start)
    if part is not None:
        headers["Content-Range"] = f"bytes {start}-{end - 1}/{record.size_bytes}"
    stream = await services.artifacts.read(record, start, end)
    return BlobResponse(stream, 206 if part else 200, headers, "application/octet-stream")


def _headers(record: ArtifactRecord) -> dict[str, str]:
    return {
        "ETag": f'"{record.sha256}"',
        "Accept-Ranges": "bytes",
        "X-Content-Type-Options": "nosniff",
    }


def _matches(header: str, etag: str) -> bool:
    stated = {tag.strip().removeprefix("W/") for tag in header.split(",")}
    return etag in stated or "*" in stated
