"""How much one caller may ask, and how slowly: requests a second, open at once, body by body."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import TypeVar

from starlette.types import Message, Receive, Scope

from flashruntime.service.errors import TooSlow

T = TypeVar("T")
MAX_CALLERS = 10_000
BURST_S = 2.0
SHARE = 0.75
BODY_IDLE_S = 30.0
BODY_GRACE_S = 60.0
MIN_BODY_BYTES_PER_S = 1024.0


class Rates:
    """A token bucket for each caller: `per_s` requests a second, twice as many at once."""

    def __init__(self, per_s: float, monotonic_s: Callable[[], float] = time.monotonic) -> None:
        self._per_s = per_s
        self._most = per_s * BURST_S
        self._monotonic_s = monotonic_s
        self._left: dict[str, tuple[float, float]] = {}

    def take(self, caller: str) -> bool:
        """Count one request; False if it comes too early.

        The callers heard of last are remembered; to be forgotten is to have a full bucket.
        """
        now_s = self._monotonic_s()
        left, then_s = self._left.pop(caller, (self._most, now_s))
        left = min(self._most, left + (now_s - then_s) * self._per_s)
        self._left[caller] = (left - 1 if left >= 1 else left, now_s)
        if len(self._left) > MAX_CALLERS:
            self._left.pop(next(iter(self._left)))
        return left >= 1


class OpenRequests:
    """How many requests are open at once: in all, and of one caller three quarters of that."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._share = max(1, int(most * SHARE))
        self._total = 0
        self._of: dict[str, int] = {}

    def enter(self, caller: str) -> str | None:
        """Count a request that begins; return the limit that it would break, None if none."""
        own = self._of.get(caller, 0)
        if own >= self._share:
            return f"this caller has {own} requests open, of at most {self._share}"
        if self._total >= self._most:
            return f"{self._total} requests are open, of at most {self._most}"
        self._of[caller] = own + 1
        self._total += 1
        return None

    def leave(self, caller: str) -> None:
        """Count a request that has ended."""
        self._total -= 1
        left = self._of[caller] - 1
        if left:
            self._of[caller] = left
        else:
            del self._of[caller]


class SteadyBody:
    """Receives a request, and gives up on a body that stalls or trickles.

    A pause may last `BODY_IDLE_S`; after `BODY_GRACE_S` the average counts too. The time that the
    coordinator itself takes between two pieces is not the sender's.
    """

    __slots__ = ("_bytes", "_receive", "_waited_s", "_whole")

    def __init__(self, receive: Receive) -> None:
        self._receive = receive
        self._whole = False
        self._waited_s = 0.0
        self._bytes = 0

    async def __call__(self) -> Message:
        """Return what arrives next; raise TooSlow."""
        if self._whole:
            return await self._receive()
        left_s = BODY_GRACE_S + self._bytes / MIN_BODY_BYTES_PER_S - self._waited_s
        began_s = time.monotonic()
        message = await within(min(BODY_IDLE_S, left_s), self._receive())
        self._waited_s += time.monotonic() - began_s
        if message["type"] == "http.request":
            self._bytes += len(message.get("body", b""))
            self._whole = not message.get("more_body", False)
        return message


def has_body(scope: Scope) -> bool:
    """Whether a request may bring a body."""
    return scope["method"] not in {"GET", "HEAD", "OPTIONS"}


async def within(timeout_s: float, awaited: Awaitable[T]) -> T:
    """Await; raise TooSlow after `timeout_s`."""
    try:
        async with asyncio.timeout(timeout_s):
            return await awaited
    except TimeoutError as error:
        raise TooSlow(
            f"the body came too slowly: within {BODY_IDLE_S:g} s something must arrive, on average "
            f"{MIN_BODY_BYTES_PER_S:g} bytes a second; send it again"
        ) from error
