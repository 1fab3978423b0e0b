"""The gate before every route: who may pass, as what, how much at once.

One pure ASGI layer. What it refuses is answered at once and reaches no route.
"""

import base64
import binascii
from collections.abc import Mapping
from typing import Any
from urllib.parse import parse_qsl

from starlette.types import ASGIApp, Receive, Scope, Send

from flashruntime.config import AccessSettings
from flashruntime.errors import AccessDenied
from flashruntime.service import addresses
from flashruntime.service.auth import Caller, TokenBook
from flashruntime.service.callers import CALLER, FindOwner, Owners
from flashruntime.service.limits import (
    BodyWatch,
    HeldBytes,
    OpenRequests,
    Rates,
    SteadyBody,
    has_body,
    is_streamed,
    within_files,
)
from flashruntime.service.refusals import Refusal, refuse, secured
from flashruntime.service.rules import Table

MAX_HEADERS = 100
MAX_HEADER_BYTES = 32 * 1024
MAX_TARGET_BYTES = 16 * 1024
_READ = frozenset({b"host", b"origin", b"sec-fetch-site", b"sec-fetch-mode", b"authorization"})


class Guard:
    """Lets a request through to the application, or answers it."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on, or refuse it."""
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
            return
        if scope["type"] != "http":
            await send({"type": "websocket.close", "code": 1008})
            return
        gate: Gate | None = getattr(scope["app"].state, "gate", None)
        send = secured(send)
        if gate is None:
            await refuse(Refusal(503, "unavailable", "the coordinator is starting"), send)
            return
        await gate.pass_on(self._app, scope, receive, send)


class Gate:
    """The rules in force: tokens, names, limits; made when the coordinator starts."""

    def __init__(
        self,
        settings: AccessSettings,
        find_owner: FindOwner,
        table: Table | None = None,
    ) -> None:
        self._settings = settings
        self._table = table or Table()
        self._book = TokenBook(settings) if settings.needs_token else None
        self._rates = Rates(settings.max_requests_per_s)
        self._open = OpenRequests(within_files(settings.max_open_requests))
        self._bodies = BodyWatch()
        self._held = HeldBytes()
        self.owners = Owners(find_owner)

    async def pass_on(self, app: ASGIApp, scope: Scope, receive: Receive, send: Send) -> None:
        """Let a request through, or answer why not."""
        path = scope["path"].removeprefix(scope.get("root_path", ""))
        if self._table.is_open(scope["method"], path):
            await app(scope, receive, send)
            return
        headers = _headers(scope)
        refusal = self._oversized(scope) or self._misdirected(scope, headers)
        if refusal is None and self._book is not None:
            refusal = await self._unauthorized(self._book, scope, headers, path)
        key = _counted_as(scope)
        if not self._rates.take(key):
            text = f"more than {self._settings.max_requests_per_s} requests a second; slow down"
            refusal = Refusal(429, "unavailable", text)
        if refusal is not None:
            await refuse(refusal, send)
            return
        if (full := self._open.enter(key)) is not None:
            text = f"{full}; wait until some have ended"
            await refuse(Refusal(429 if "caller" in full else 503, "unavailable", text), send)
            return
        try:
            if has_body(scope):
                await self._with_body(app, scope, receive, send)
            else:
                await app(scope, receive, send)
        finally:
            self._open.leave(key)

    async def _with_body(self, app: ASGIApp, scope: Scope, receive: Receive, send: Send) -> None:
        body = SteadyBody(receive, self._bodies, None if is_streamed(scope) else self._held)
        try:
            await app(scope, body, send)
        finally:
            body.release()

    def _oversized(self, scope: Scope) -> Refusal | None:
        if len(scope["raw_path"]) + len(scope["query_string"]) > MAX_TARGET_BYTES:
            return Refusal(414, "invalid", f"the address has more than {MAX_TARGET_BYTES} bytes")
        size_bytes, headers = 0, scope["headers"]
        for name, value in headers:
            size_bytes += len(name) + len(value)
        if len(headers) > MAX_HEADERS or size_bytes > MAX_HEADER_BYTES:
            text = f"more than {MAX_HEADERS} headers, or {MAX_HEADER_BYTES} bytes of them"
            return Refusal(431, "invalid", f"{text}; send fewer")
        return None

    def _misdirected(self, scope: Scope, headers: Mapping[bytes, bytes]) -> Refusal | None:
        settings, server = self._settings, scope.get("server")
        if addresses.crosses_sites(scope["method"], headers):
            text = "a page of another site may not call this coordinator; open its own page"
            return Refusal(403, "forbidden", text)
        if self._book is None and not settings.allow_open and not _local(server):
            return Refusal(
                403,
                "forbidden",
                "without tokens this coordinator serves its own machine only; set "
                "FLASHML_TOKENS_FILE or FLASHML_TOKEN, or FLASHML_ALLOW_OPEN=1 where the network "
                "is private",
            )
        if self._book is not None and not settings.allowed_hosts:
            return None
        if not self._named_well(headers.get(b"host")):
            shown = headers.get(b"host", b"").decode("ascii", "replace")[:256]
            return Refusal(
                403,
                "forbidden",
                f"Host {shown!r} is no name of this coordinator; add the name to "
                "FLASHML_ALLOWED_HOSTS, or configure tokens",
            )
        return None

    def _named_well(self, host: bytes | None) -> bool:
        name = None if host is None else addresses.name_in(host)
        allowed = self._settings.allowed_hosts
        if name is None:
            return False
        if name == "localhost" or addresses.is_loopback(name) or name in allowed or "*" in allowed:
            return True
        # A browser cannot be led to an address by a name that changes its meaning.
        return self._settings.allow_open and addresses.is_address(name)

    async def _unauthorized(
        self, book: TokenBook, scope: Scope, headers: Mapping[bytes, bytes], path: str
    ) -> Refusal | None:
        shown = headers.get(b"authorization")
        token = None if shown is None else _token_in(shown)
        caller = None if token is None else book.caller(token)
        if caller is None:
            return _challenge(scope, known=token is not None)
        scope[CALLER] = caller
        access, parameters = self._table.access(scope["method"], path)
        if not caller.roles & access.value:
            text = f"{caller.name!r} is no {access.words}; use the token of one"
            return Refusal(403, "forbidden", text)
        try:
            await self.owners.require(caller, parameters)
            for name, value in parse_qsl(scope["query_string"].decode("latin-1")):
                await self.owners.require(caller, {name: value})
        except AccessDenied as error:
            return Refusal(403, "forbidden", str(error))
        return None


def _headers(scope: Scope) -> Mapping[bytes, bytes]:
    """Return the headers that decide; of one that occurs twice, nothing that would be accepted."""
    found: dict[bytes, bytes] = {}
    for name, value in scope["headers"]:
        if name in _READ:
            found[name] = value if name not in found else b"\0"
    return found


def _counted_as(scope: Scope) -> str:
    caller: Caller | None = scope.get(CALLER)
    if caller is not None:
        return caller.name
    client = scope.get("client")
    return "@" + (client[0] if client else "local")


def _local(server: Any) -> bool:
    """Whether a connection came in at a loopback address, or at a socket of the file system."""
    return server is None or server[1] is None or addresses.is_loopback(server[0])


def _token_in(shown: bytes) -> str | None:
    scheme, _, rest = shown.decode("latin-1").partition(" ")
    if scheme.lower() == "bearer":
        return rest.strip()
    if scheme.lower() != "basic":
        return None
    try:
        return base64.b64decode(rest, validate=True).decode("latin-1").partition(":")[2]
    except (binascii.Error, ValueError):
        return None


def _challenge(scope: Scope, *, known: bool) -> Refusal:
    """Ask for a token; of a browser that opens a page, as a password, so that it asks its user."""
    text = "this coordinator needs a token: send it as `Authorization: Bearer TOKEN`"
    asked = [(b"www-authenticate", b'Bearer realm="flashruntime"')]
    if known:
        text = "this coordinator does not know the token that was sent; it may have been replaced"
        asked = [(b"www-authenticate", b'Bearer realm="flashruntime", error="invalid_token"')]
    if any(name == b"accept" and b"text/html" in value for name, value in scope["headers"]):
        asked.append((b"www-authenticate", b'Basic realm="flashruntime: the token as password"'))
    return Refusal(401, "unauthorized", text, tuple(asked))
