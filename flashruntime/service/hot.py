"""The calls that come thousands of times a second, past FastAPI's machinery.

Only what is plain and valid is answered here, by the same route functions and in the same words;
all else goes on to the application as it came, to be refused or answered there.
"""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from fastapi import Request, Response
from pydantic import BaseModel
from pydantic_core import from_json
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from flashruntime.errors import FlashError
from flashruntime.protocol.base import strict_dumps
from flashruntime.protocol.nodes import NodeHeartbeat
from flashruntime.protocol.tasks import ClaimRequest, CompleteRequest, HeartbeatRequest
from flashruntime.service.errors import answer_to
from flashruntime.service.routes import MAX_ID_CHARACTERS, artifacts, leases, nodes
from flashruntime.service.services import Services
from flashruntime.service.small_puts import SMALL_BYTES
from flashruntime.service.strict import object_key

PREFIX = "/v1alpha1/"
ARTIFACTS = artifacts.RAW_PREFIX.decode()
JSON = b"application/json"
_READ = frozenset({b"content-length", b"content-type", b"transfer-encoding", b"x-sha256"})
Handler = Callable[["Asked"], Awaitable[BaseModel | Response]]


@dataclass(frozen=True, slots=True)
class Asked:
    """A call with its body read: `value` is its model, None for an upload."""

    name: str
    value: BaseModel | None
    digest: bytes | None
    request: Request
    services: Services


@dataclass(frozen=True, slots=True)
class HotRoute:
    """A call: its path with the name of what stands in it, the model of its body, its handler."""

    path: str
    model: type[BaseModel] | None
    handler: Handler
    parameter: str = ""


async def _claim(asked: Asked) -> BaseModel | Response:
    assert isinstance(asked.value, ClaimRequest)  # noqa: S101 (the model of its route)
    return await leases.claim(asked.value, asked.request, asked.services)


async def _heartbeat(asked: Asked) -> BaseModel:
    assert isinstance(asked.value, HeartbeatRequest)  # noqa: S101 (the model of its route)
    return await leases.heartbeat(asked.name, asked.services, asked.value)


async def _complete(asked: Asked) -> BaseModel:
    assert isinstance(asked.value, CompleteRequest)  # noqa: S101 (the model of its route)
    return await leases.complete(asked.name, asked.value, asked.services)


async def _node_heartbeat(asked: Asked) -> BaseModel:
    assert isinstance(asked.value, NodeHeartbeat)  # noqa: S101 (the model of its route)
    return await nodes.heartbeat(asked.name, asked.services, asked.value)


async def _put(asked: Asked) -> BaseModel:
    key = object_key(asked.request.scope["raw_path"], artifacts.RAW_PREFIX)
    digest = None if asked.digest is None else asked.digest.decode("latin-1")
    return await artifacts.put(key, asked.request, asked.services, digest)


_CLAIM = HotRoute("/v1alpha1/leases/claim", ClaimRequest, _claim)
_PUT = HotRoute("/v1alpha1/artifacts/{key}", None, _put, "key")
_BELOW = {
    ("attempts", "heartbeat"): HotRoute(
        "/v1alpha1/attempts/{lease_id}/heartbeat", HeartbeatRequest, _heartbeat, "lease_id"
    ),
    ("attempts", "complete"): HotRoute(
        "/v1alpha1/attempts/{lease_id}/complete", CompleteRequest, _complete, "lease_id"
    ),
    ("nodes", "heartbeat"): HotRoute(
        "/v1alpha1/nodes/{node_id}/heartbeat", NodeHeartbeat, _node_heartbeat, "node_id"
    ),
}


class HotPaths:
    """ASGI middleware, the innermost: answers the hot calls, passes on the others."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a plain call of a hot route, or pass it on."""
        found = _route(scope)
        headers = None if found is None else _headers(scope)
        if found is None or headers is None or not _plain(found[0], headers):
            await self._app(scope, receive, send)
            return
        route, name = found
        try:
            messages = await _whole(receive)
        except FlashError as error:
            await answer_to(error)(scope, receive, send)
            return
        again = _again(messages, receive)
        valid, value = _value(route, messages)
        if not valid:
            await self._app(scope, again, send)
            return
        scope["route"], scope["path_params"] = route, {route.parameter: name}
        services: Services = scope["app"].state.services
        request = Request(scope, again if route.model is None else receive)
        asked = Asked(name, value, headers.get(b"x-sha256"), request, services)
        try:
            answer = await route.handler(asked)
        except FlashError as error:
            answer = answer_to(error)
        await _send(answer, scope, receive, send)


def _route(scope: Scope) -> tuple[HotRoute, str] | None:
    """Return the hot route of a request and what stands in its path."""
    if scope["type"] != "http" or scope["query_string"] or scope.get("root_path"):
        return None
    path: str = scope["path"]
    if scope["method"] == "PUT" and path.startswith(ARTIFACTS):
        return _PUT, path.removeprefix(ARTIFACTS)
    if scope["method"] != "POST" or b"%" in scope["raw_path"] or not path.startswith(PREFIX):
        return None
    return (_CLAIM, "") if path == _CLAIM.path else _posted(path.removeprefix(PREFIX).split("/"))


def _posted(parts: list[str]) -> tuple[HotRoute, str] | None:
    if len(parts) != 3 or not 0 < len(parts[1]) <= MAX_ID_CHARACTERS:
        return None
    route = _BELOW.get((parts[0], parts[2]))
    return None if route is None else (route, parts[1])


def _headers(scope: Scope) -> dict[bytes, bytes] | None:
    """Return the headers that matter here; None where one is repeated."""
    found: dict[bytes, bytes] = {}
    for name, value in scope["headers"]:
        if name in _READ:
            if name in found:
                return None
            found[name] = value
    return found


def _plain(route: HotRoute, headers: dict[bytes, bytes]) -> bool:
    length = headers.get(b"content-length", b"")
    if not length.isdigit() or len(length) > 6 or b"transfer-encoding" in headers:
        return False
    if route.model is not None and headers.get(b"content-type") != JSON:
        return False
    return 0 < int(length) <= SMALL_BYTES


async def _whole(receive: Receive) -> list[Message]:
    """Return the messages of a body, up to its end or its sender's."""
    messages = [await receive()]
    while messages[-1]["type"] == "http.request" and messages[-1].get("more_body"):
        messages.append(await receive())
    return messages


def _again(messages: list[Message], receive: Receive) -> Receive:
    """Return what gives the messages once more, then what comes after them."""
    left = iter(messages)

    async def again() -> Message:
        for message in left:
            return message
        return await receive()

    return again


def _value(route: HotRoute, messages: list[Message]) -> tuple[bool, BaseModel | None]:
    """Return whether a body is whole and valid, and its model."""
    if messages[-1]["type"] != "http.request":
        return False, None
    if route.model is None:
        return True, None
    content = b"".join([message.get("body", b"") for message in messages])
    try:
        value = from_json(content, allow_inf_nan=False)
        strict_dumps(value)
        return True, route.model.model_validate(value)
    except ValueError:
        return False, None


async def _send(answer: BaseModel | Response, scope: Scope, receive: Receive, send: Send) -> None:
    if isinstance(answer, Response):
        await answer(scope, receive, send)
        return
    content = answer.model_dump_json(by_alias=True).encode()
    headers = [(b"content-length", b"%d" % len(content)), (b"content-type", JSON)]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": content})
