"""Answers without a route, and the headers that every answer carries."""

import json
from collections.abc import Iterable
from dataclasses import dataclass

from starlette.types import Message, Send

Header = tuple[bytes, bytes]
RETRY_AFTER_S = b"1"
_ALWAYS: tuple[Header, ...] = (
    (b"x-content-type-options", b"nosniff"),
    (b"cross-origin-resource-policy", b"same-origin"),
    (b"cache-control", b"no-store"),
)
_HTML: tuple[Header, ...] = (
    (b"referrer-policy", b"no-referrer"),
    (b"x-frame-options", b"DENY"),
)
_NAMES = frozenset(name for name, _ in (*_ALWAYS, *_HTML)) | {b"content-security-policy"}
PAGE_POLICY = (
    b"default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
    b"font-src 'self'; connect-src 'self'; base-uri 'none'; form-action 'none'; "
    b"frame-ancestors 'none'"
)


@dataclass(frozen=True, slots=True)
class Refusal:
    """An answer that stands in for that of a route."""

    status: int
    code: str
    detail: str
    headers: tuple[Header, ...] = ()


async def refuse(refusal: Refusal, send: Send) -> None:
    """Send a refusal in the form of every error."""
    body = json.dumps({"detail": refusal.detail, "code": refusal.code}).encode()
    headers = [
        (b"content-type", b"application/json"),
        (b"content-length", str(len(body)).encode()),
        *refusal.headers,
    ]
    if refusal.status in {429, 503}:
        headers.append((b"retry-after", RETRY_AFTER_S))
    await send({"type": "http.response.start", "status": refusal.status, "headers": headers})
    await send({"type": "http.response.body", "body": body})


def secured(send: Send) -> Send:
    """Return a `send` that adds what browsers have to know; what a route says itself stands."""

    async def add(message: Message) -> None:
        if message["type"] == "http.response.start":
            message["headers"] = _completed(message.get("headers", ()))
        await send(message)

    return add


def _completed(headers: Iterable[Header]) -> list[Header]:
    html, said = False, set()
    for name, value in headers:
        if name == b"content-type":
            html = b"html" in value
        elif name in _NAMES:
            said.add(name)
    ours = _ALWAYS
    if html:
        ours = (*_ALWAYS, *_HTML, (b"content-security-policy", PAGE_POLICY))
    if said:
        ours = tuple(header for header in ours if header[0] not in said)
    return [*headers, *ours]
