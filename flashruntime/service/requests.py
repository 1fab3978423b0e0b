"""Around every request: an id that names it everywhere, its count and time, and a line in the log.

Successful calls of workers leave events in the ledger and are logged at debug level only; all
other changes and refusals at info, a 503 at warning, other failures at error level.
"""

import logging
import re
import secrets
import time
from itertools import count

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from flashruntime.service import jsonlog
from flashruntime.service.observe import Observed

log = logging.getLogger(__name__)
HEADER = b"x-request-id"
UNKNOWN_ROUTE = "(none)"
_VALID = re.compile(rb"[A-Za-z0-9][A-Za-z0-9._:-]{0,127}")
PREFIX = "/v1alpha1"
_ARTIFACTS = f"{PREFIX}/artifacts/"
_QUIET = frozenset(
    {
        "/v1alpha1/leases/claim",
        "/v1alpha1/attempts/{lease_id}/heartbeat",
        "/v1alpha1/attempts/{lease_id}/logs",
        "/v1alpha1/attempts/{lease_id}/complete",
        "/v1alpha1/nodes/{node_id}/heartbeat",
        "/v1alpha1/artifacts/{key}",
    }
)
_STREAMS = (b"text/event-stream", b"application/x-ndjson")
# An id costs no call to the system: who made it, and how many it has made.
_PREFIX = secrets.token_hex(4)
_NUMBERS = count()
_READS = frozenset({"GET", "HEAD", "OPTIONS"})


class AroundRequests:
    """The outermost layer of the application."""

    def __init__(self, app: ASGIApp, observed: Observed) -> None:
        self._app = app
        self._observed = observed

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve a request; what is no request passes through."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        call = _Call(scope, self._observed, send)
        jsonlog.about.set(call.ids)
        bytes_in = call.counted(receive) if call.artifact else receive
        self._observed.in_progress += 1
        try:
            await self._app(scope, bytes_in, call.send)
        finally:
            self._observed.in_progress -= 1
            call.ended()


class _Call:
    """One request under way."""

    __slots__ = (
        "_began_s",
        "_header",
        "_observed",
        "_scope",
        "_send",
        "_status",
        "_streams",
        "artifact",
        "ids",
    )

    def __init__(self, scope: Scope, observed: Observed, send: Send) -> None:
        self._began_s = time.perf_counter()
        self._scope = scope
        self._observed = observed
        self._send = send
        self._status = 0
        self._streams = False
        self.artifact = scope["path"].startswith(_ARTIFACTS)
        request_id = _request_id(scope)
        self._header = (HEADER, request_id.encode())
        self.ids = {"request_id": request_id}

    def counted(self, receive: Receive) -> Receive:
        """Return `receive`, counting the bytes of an artifact."""

        async def counting() -> Message:
            message = await receive()
            self._observed.received.inc(by=len(message.get("body", b"")))
            return message

        return counting

    async def send(self, message: Message) -> None:
        """Send a part of the answer; its head names the request."""
        if message["type"] == "http.response.start":
            self._status = message["status"]
            headers = [*message.get("headers", ()), self._header]
            message["headers"] = headers
            for name, value in headers:
                if name == b"content-type":
                    self._streams = value.startswith(_STREAMS)
        elif self.artifact and self._status < 300:
            self._observed.sent.inc(by=len(message.get("body", b"")))
        await self._send(message)

    def ended(self) -> None:
        """Count the request and write its line."""
        seconds = time.perf_counter() - self._began_s
        scope, status = self._scope, self._status
        route = _template(scope)
        method = scope["method"]
        self._observed.answered(method, route, status, None if self._streams else seconds)
        level = _level(method, route, status)
        if not log.isEnabledFor(level):
            return
        params: dict[str, object] = scope.get("path_params") or {}
        about = {name: value for name, value in params.items() if name.endswith("_id")}
        client = scope.get("client")
        log.log(
            level,
            "%s %s",
            method,
            scope["path"],
            extra={
                **about,
                "event": "request",
                "method": method,
                "route": route,
                "status": status or None,
                "duration_ms": round(seconds * 1000, 3),
                "client": client[0] if client else None,
            },
        )


def _template(scope: Scope) -> str:
    """Return the path of the route that answered, with the names of its parameters."""
    path = getattr(scope.get("route"), "path", None)
    if path is None:
        return UNKNOWN_ROUTE
    path = path.replace(":anytext", "")
    prefixed = path.startswith(PREFIX) or not scope["path"].startswith(PREFIX)
    return str(path if prefixed else PREFIX + path)


def _request_id(scope: Scope) -> str:
    for name, value in scope["headers"]:
        if name == HEADER and _VALID.fullmatch(value):
            return str(value, "ascii")
    return f"{_PREFIX}{next(_NUMBERS):010x}"


def _level(method: str, route: str, status: int) -> int:
    if status >= 500:
        return logging.WARNING if status == 503 else logging.ERROR
    if status >= 400 or status == 0:
        return logging.INFO
    return logging.DEBUG if method in _READS or route in _QUIET else logging.INFO
