"""What the client sends and gets: bodies, paths, and answers as models or errors."""

import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import BinaryIO, NoReturn, TypeVar, cast
from urllib.parse import quote

import httpx
from pydantic import BaseModel, ValidationError

from flashruntime.errors import (
    Conflict,
    CoordinatorUnreachable,
    FlashError,
    InvalidInput,
    NotFound,
    Superseded,
)
from flashruntime.protocol.base import check_key

Model = TypeVar("Model", bound=BaseModel)
REQUEST_ID = "X-Request-ID"
_ERRORS: dict[int, type[FlashError]] = {404: NotFound, 409: Conflict, 410: Superseded}


def name(request: httpx.Request) -> None:
    """Give a request an id, which stands in the coordinator's log too."""
    request.headers[REQUEST_ID] = secrets.token_hex(8)


def request_of(request: httpx.Request) -> str:
    """Name a request as its log line does."""
    return f"request {request.headers[REQUEST_ID]}"


def json_of(body: BaseModel) -> bytes:
    """Return a body as JSON; InvalidInput."""
    try:
        return body.model_dump_json().encode()
    except ValueError as error:
        raise InvalidInput(f"{type(body).__name__} cannot be written as JSON: {error}") from error


def parse(answer: httpx.Response, model: type[Model]) -> Model:
    """Return an answer as a model; CoordinatorUnreachable if it is none."""
    try:
        return model.model_validate_json(answer.content)
    except ValidationError as error:
        raise CoordinatorUnreachable(
            f"{answer.request.method} {answer.request.url}: the answer is not a "
            f"{model.__name__}; is this a coordinator of the same version? ({error})"
        ) from error


def raise_for(answer: httpx.Response) -> NoReturn:
    """Raise what an answer's status means, with the coordinator's own words."""
    try:
        fields = answer.json()
        detail, ours = str(fields["detail"]), "code" in fields
    except (ValueError, KeyError, TypeError):
        detail, ours = answer.text[:500], False
    if answer.status_code == 404 and not ours:
        server = answer.request.url.copy_with(raw_path=b"/")
        detail = f"{server} knows no such address; is this a coordinator?"
    message = f"{answer.request.method} {answer.request.url.path}: {answer.status_code} {detail}"
    if answer.status_code >= 500 or answer.status_code in {409, 410}:
        message += f" ({request_of(answer.request)})"
    if answer.status_code >= 500 or answer.status_code < 400:
        raise CoordinatorUnreachable(message)
    raise _ERRORS.get(answer.status_code, InvalidInput)(message)


def segment(identifier: str) -> str:
    """Return an id as a segment of a path; InvalidInput."""
    if not identifier or identifier in {".", ".."}:
        raise InvalidInput(f"an id must not be {identifier!r}; take it from the coordinator")
    return quote(identifier, safe="")


def key_of(key: str) -> str:
    """Return an object key as the end of a path; InvalidInput."""
    try:
        return quote(check_key(key), safe="/")
    except ValueError as error:
        raise InvalidInput(str(error)) from error


def query_of(**values: str | int | None) -> dict[str, str | int]:
    """Return the parameters that have a value."""
    return {name: value for name, value in values.items() if value is not None}


@contextmanager
def replacing(to: Path) -> Iterator[BinaryIO]:
    """Write a file that takes the place of `to` when the block ends well."""
    with NamedTemporaryFile(dir=to.parent, prefix=f".{to.name[:64]}.", delete=False) as part:
        try:
            yield cast(BinaryIO, part)
            part.flush()
            Path(part.name).replace(to)
        except BaseException:
            Path(part.name).unlink(missing_ok=True)
            raise
