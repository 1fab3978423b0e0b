"""How a client shows who it is, and what an answer that is no success means."""

import secrets
import time
from collections.abc import Callable, Generator
from typing import NoReturn

import httpx

from flashruntime.errors import (
    AccessDenied,
    Conflict,
    CoordinatorUnreachable,
    FlashError,
    InvalidInput,
    NotFound,
    QuotaExceeded,
    Superseded,
    TokenRefused,
)

Token = str | Callable[[], str | None] | None
MAX_WAIT_S = 5.0
MAX_REPEATS = 3
TOO_MANY = 429
REQUEST_ID = "X-Request-ID"
_ERRORS: dict[int, type[FlashError]] = {
    401: TokenRefused,
    403: AccessDenied,
    404: NotFound,
    409: Conflict,
    410: Superseded,
    413: QuotaExceeded,
}
_REMEDY = "set FLASHML_TOKEN or FLASHML_TOKEN_FILE to a token that the coordinator knows"


class Access(httpx.Auth):
    """Sends the token with each request, and waits as long as an answer 429 asks for.

    Such a request was not carried out, so that it may be repeated; where its body is a stream that
    is spent, the answer goes to the caller.
    """

    def __init__(self, token: Token, sleep: Callable[[float], None] = time.sleep) -> None:
        if isinstance(token, str) and not (token.isascii() and token.isprintable()):
            raise InvalidInput("token must be printable ASCII; take it as it was given to you")
        self._token = token if callable(token) else lambda: token
        self._sleep = sleep

    def auth_flow(self, request: httpx.Request) -> Generator[httpx.Request, httpx.Response, None]:
        """Send the request, again where it came too early."""
        request.headers.setdefault(REQUEST_ID, secrets.token_hex(8))
        token = self._token()
        if token:
            request.headers["Authorization"] = f"Bearer {token}"
        again = isinstance(request.stream, httpx.ByteStream)
        answer = yield request
        for _ in range(MAX_REPEATS):
            if answer.status_code != TOO_MANY or not again:
                return
            self._sleep(min(MAX_WAIT_S, max(retry_after_s(answer), 0.1)))
            answer = yield request


def retry_after_s(answer: httpx.Response) -> float:
    """Return the seconds after which an answer asks to be called again; 0 if it does not."""
    stated = answer.headers.get("Retry-After", "")
    return float(stated) if stated.isascii() and stated.isdigit() and len(stated) < 7 else 0.0


def named(request: httpx.Request) -> str:
    """Name a request as the coordinator's log does."""
    return f"request {request.headers.get(REQUEST_ID, 'without an id')}"


def raise_for(answer: httpx.Response) -> NoReturn:
    """Raise what an answer means that is no success."""
    try:
        fields = answer.json()
        detail, ours = str(fields["detail"]), "code" in fields
    except (ValueError, KeyError, TypeError):
        detail, ours = answer.text[:500], False
    if answer.status_code == 404 and not ours:
        server = answer.request.url.copy_with(raw_path=b"/")
        detail = f"{server} knows no such address; is this a coordinator?"
    if answer.status_code == 401:
        detail = f"{detail}; {_REMEDY}"
    message = f"{answer.request.method} {answer.request.url.path}: {answer.status_code} {detail}"
    if answer.status_code >= 500 or answer.status_code in {409, 410}:
        message += f" ({named(answer.request)})"
    if answer.status_code >= 500 or answer.status_code < 400 or answer.status_code == TOO_MANY:
        raise CoordinatorUnreachable(message, retry_after_s=retry_after_s(answer))
    raise _ERRORS.get(answer.status_code, InvalidInput)(message)
