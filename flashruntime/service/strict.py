"""Strict JSON and object keys at the edge: what HTTP brings is checked before anything uses it."""

from collections.abc import Callable, Coroutine
from typing import Any
from urllib.parse import unquote_to_bytes

from fastapi import Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.routing import APIRoute
from pydantic_core import from_json

from flashruntime.protocol.base import check_key, strict_dumps
from flashruntime.service.callers import require_own
from flashruntime.service.errors import BadKey, TooLarge

MAX_JSON_BYTES = 64 * 1024 * 1024
MAX_CALL_BYTES = 8 * 1024 * 1024
JOBS = "/jobs"
MAX_JSON_VALUES = 2_500_000
MAX_FIELDS = 150_000
_BULK = frozenset({"task_params", "trials"})


class StrictRequest(Request):
    """A request whose JSON body was read whole and parsed before its handler sees it."""

    value: Any = None
    _content = b""

    async def load(self, max_bytes: int = MAX_JSON_BYTES) -> None:
        """Read and parse the body; raise TooLarge or RequestValidationError.

        Text is valid Unicode, numbers are finite, nesting is bounded; of keys that occur twice
        the last one counts.
        """
        self._content = await read_body(self, max_bytes)
        if not self._content:
            return
        check_values(self._content)
        try:
            self.value = from_json(self._content, allow_inf_nan=False)
            check_fields(self.value)
            strict_dumps(self.value)
        except TooLarge:
            raise
        except ValueError as error:
            problem = {"type": "json_invalid", "loc": ("body",), "msg": f"not strict JSON: {error}"}
            raise RequestValidationError([{**problem, "input": {}}]) from error

    async def body(self) -> bytes:
        """Return the body."""
        return self._content

    async def json(self) -> Any:
        """Return the parsed body."""
        return self.value


class StrictRoute(APIRoute):
    """A route that takes strict JSON only."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """Return the handler."""
        handler = super().get_route_handler()
        if self.body_field is None:
            return handler

        max_bytes = MAX_JSON_BYTES if self.path.endswith(JOBS) else MAX_CALL_BYTES

        async def strict(request: Request) -> Response:
            checked = StrictRequest(request.scope, request.receive)
            await checked.load(max_bytes)
            await require_own(request, checked.value)
            return await handler(checked)

        return strict


def check_values(content: bytes) -> None:
    """Raise TooLarge where parsing would turn few bytes into many objects."""
    if sum(content.count(mark) for mark in (b",", b"[", b"{")) > MAX_JSON_VALUES:
        raise TooLarge(
            f"the JSON body has more than {MAX_JSON_VALUES} commas and brackets; move data into "
            "an input file, or split the job"
        )


def check_fields(value: Any) -> None:
    """Raise TooLarge where a report of what is wrong with each field could be without bounds.

    The parameters of tasks are left out: they have a limit of their own.
    """
    found, todo = 0, [value]
    while todo:
        item = todo.pop()
        found += len(item) if isinstance(item, dict | list) else 1
        if found > MAX_FIELDS:
            raise TooLarge(
                f"the JSON body has more than {MAX_FIELDS} fields beside those of task_params and "
                "trials; move data into an input file, or split the job"
            )
        if isinstance(item, dict):
            item = [child for name, child in item.items() if name not in _BULK]
        if isinstance(item, list):
            todo += [child for child in item if isinstance(child, dict | list)]


async def read_body(request: Request, max_bytes: int) -> bytes:
    """Return the whole body; raise TooLarge as soon as it is known to be."""
    stated = request.headers.get("content-length", "")
    if stated.isascii() and stated.isdigit() and len(stated) < 19 and int(stated) > max_bytes:
        raise TooLarge(f"the body has {stated} bytes, more than {max_bytes}; send less at once")
    chunks: list[bytes] = []
    size_bytes = 0
    async for chunk in request.stream():
        size_bytes += len(chunk)
        if size_bytes > max_bytes:
            raise TooLarge(f"the body has more than {max_bytes} bytes; send less at once")
        chunks.append(chunk)
    return b"".join(chunks)


def object_key(raw_path: bytes, prefix: bytes) -> str:
    """Return the object key that follows `prefix` in a path as it came over the wire.

    It is decoded exactly once. Raises BadKey where it breaks a rule or could be read in two ways.
    """
    if not raw_path.startswith(prefix):
        raise BadKey(f"write {prefix.decode()} without percent signs")
    raw = raw_path[len(prefix) :]
    if b"%2f" in raw.lower():
        raise BadKey("an object key must not contain an encoded slash; write '/' as it is")
    try:
        return check_key(unquote_to_bytes(raw).decode())
    except UnicodeDecodeError as error:
        raise BadKey("an object key must be UTF-8; encode it as such") from error
    except ValueError as error:
        raise BadKey(str(error)) from error
