"""How errors appear over HTTP: one table from exception to status and code."""

import logging
from dataclasses import dataclass

from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect

from flashruntime.errors import (
    AccessDenied,
    ArtifactCorrupt,
    Conflict,
    FlashError,
    InvalidInput,
    NotFound,
    QuotaExceeded,
    StoreFull,
    StoreUnavailable,
    Superseded,
)
from flashruntime.service.jsonlog import request_id

log = logging.getLogger(__name__)
MAX_SHOWN_PROBLEMS = 5
RETRY_AFTER_S = 1


class BadKey(InvalidInput):
    """The object key breaks a rule."""


class BadHeader(InvalidInput):
    """A header of the request breaks a rule."""


class TooLarge(InvalidInput):
    """The body is larger than allowed."""


class TooSlow(InvalidInput):
    """The body does not arrive."""


class TooBusy(StoreUnavailable):
    """Others keep the coordinator busy; try again later."""


class UnsatisfiableRange(InvalidInput):
    """The range lies outside of the object."""

    def __init__(self, header: str | None, size_bytes: int) -> None:
        super().__init__(f"range {header!r} lies outside of {size_bytes} bytes")
        self.size_bytes = size_bytes


class LogGap(Conflict):
    """Output is missing between what is stored and the offset that was sent."""

    def __init__(self, size: int, offset: int) -> None:
        super().__init__(f"offset {offset} leaves a gap: send again from byte {size}")
        self.size = size


@dataclass(frozen=True, slots=True)
class Status:
    """An HTTP status and the word that names it to programs."""

    number: int
    code: str


TABLE: dict[type[FlashError], Status] = {
    BadKey: Status(400, "invalid"),
    BadHeader: Status(400, "invalid"),
    TooLarge: Status(413, "invalid"),
    QuotaExceeded: Status(413, "invalid"),
    TooSlow: Status(408, "invalid"),
    UnsatisfiableRange: Status(416, "invalid"),
    InvalidInput: Status(422, "invalid"),
    Superseded: Status(410, "superseded"),
    Conflict: Status(409, "conflict"),
    AccessDenied: Status(403, "forbidden"),
    NotFound: Status(404, "not_found"),
    ArtifactCorrupt: Status(404, "not_found"),
    StoreFull: Status(507, "full"),
    StoreUnavailable: Status(503, "unavailable"),
    FlashError: Status(500, "unavailable"),
}


def status_of(error: FlashError) -> Status:
    """Return the status of the nearest class of `error` in the table."""
    return next(TABLE[kind] for kind in type(error).__mro__ if kind in TABLE)


def add_handlers(app: FastAPI) -> None:
    """Make `app` answer every error as `{"detail", "code", "request_id"}`."""
    app.add_exception_handler(FlashError, _flash_error)
    app.add_exception_handler(RequestValidationError, _bad_request)
    app.add_exception_handler(HTTPException, _http_error)
    app.add_exception_handler(ClientDisconnect, _gone)
    app.add_exception_handler(Exception, _unexpected)


def _answer(number: int, code: str, detail: str, **extra: int) -> JSONResponse:
    safe = detail.encode("utf-8", "replace").decode()
    body = {"detail": safe, "code": code, "request_id": request_id(), **extra}
    return JSONResponse(body, number)


def _flash_error(_request: Request, error: Exception) -> Response:
    assert isinstance(error, FlashError)  # noqa: S101 (registered for this class alone)
    return answer_to(error)


def answer_to(error: FlashError) -> Response:
    """Return the answer that tells of an error."""
    status = status_of(error)
    if status.number >= 500 or isinstance(error, ArtifactCorrupt):
        log.error("%s", error, extra={"event": "request_failed"})
    extra = {"size": error.size} if isinstance(error, LogGap) else {}
    answer = _answer(status.number, status.code, str(error), **extra)
    if status.number == 503:
        answer.headers["Retry-After"] = str(RETRY_AFTER_S)
    if isinstance(error, TooSlow):
        answer.headers["Connection"] = "close"
    if isinstance(error, UnsatisfiableRange):
        answer.headers["Content-Range"] = f"bytes */{error.size_bytes}"
    return answer


def _bad_request(_request: Request, error: Exception) -> Response:
    assert isinstance(error, RequestValidationError)  # noqa: S101 (registered for this class alone)
    problems = error.errors()
    shown = [_problem(problem) for problem in problems[:MAX_SHOWN_PROBLEMS]]
    if len(problems) > MAX_SHOWN_PROBLEMS:
        shown.append(f"and {len(problems) - MAX_SHOWN_PROBLEMS} more")
    return _answer(422, "invalid", "; ".join(shown))


def _problem(problem: dict[str, object]) -> str:
    place = problem.get("loc")
    parts = place if isinstance(place, tuple | list) else (place,)
    name = ".".join(str(part) for part in parts if part != "body") or "body"
    given = problem.get("input")
    if isinstance(given, bytes):
        return "body: send one JSON object with Content-Type: application/json"
    text = "" if isinstance(given, dict | list) else f", not {str(given)[:80]!r}"
    return f"{name[:200]}: {problem.get('msg')}{text}"


def _http_error(_request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)  # noqa: S101 (registered for this class alone)
    code = "not_found" if error.status_code == 404 else "invalid"
    return _answer(error.status_code, code, str(error.detail))


def _gone(request: Request, _error: Exception) -> Response:
    where = {"event": "request_cut", "method": request.method, "path": request.url.path}
    log.info("the client closed the connection before its request was whole", extra=where)
    return Response(status_code=400)


def _unexpected(_request: Request, _error: Exception) -> Response:
    return _answer(500, "unavailable", "internal error; the coordinator's log has the reason")
