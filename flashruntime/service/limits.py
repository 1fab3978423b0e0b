"""How much one caller may ask, and how slowly: requests a second, open at once, body by body."""

import asyncio
import resource
import time
from collections.abc import Callable

from starlette.types import Message, Receive, Scope

from flashruntime.service.errors import TooBusy, TooSlow

OUTPUT = "/v1alpha1/attempts/"
MAX_CALLERS = 10_000
BURST_S = 2.0
SHARE = 0.75
SPARE_FILES = 256
LOOK_S = 1.0
BODY_IDLE_S = 30.0
BODY_GRACE_S = 60.0
MIN_BODY_BYTES_PER_S = 1024.0
MAX_HELD_BYTES = 128 * 1024 * 1024


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


def within_files(most: int) -> int:
    """Return how many requests may be open where each needs a file, and the rest some too."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return most if soft == resource.RLIM_INFINITY else max(1, min(most, soft - SPARE_FILES))


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


class HeldBytes:
    """How many bytes of bodies are held in memory at once, of all requests together."""

    def __init__(self, most: int = MAX_HELD_BYTES) -> None:
        self._left = most

    def take(self, size_bytes: int) -> None:
        """Count bytes that arrived; raise TooBusy where there is no room for them."""
        if size_bytes > self._left:
            raise TooBusy("too many bytes of requests are held at this moment; send it again")
        self._left -= size_bytes

    def give(self, size_bytes: int) -> None:
        """Count bytes that are held no longer."""
        self._left += size_bytes


class BodyWatch:
    """Ends waits for bodies that last too long; one look in `LOOK_S` serves all requests."""

    def __init__(self) -> None:
        self._waiting: dict[SteadyBody, None] = {}
        self._looking = False

    def add(self, body: "SteadyBody") -> None:
        """Watch a body that is waited for."""
        self._waiting[body] = None
        if not self._looking:
            self._looking = True
            asyncio.get_running_loop().call_later(LOOK_S, self._look)

    def remove(self, body: "SteadyBody") -> None:
        """Leave a body alone that came."""
        del self._waiting[body]

    def _look(self) -> None:
        now_s = time.monotonic()
        for body in [each for each in self._waiting if now_s >= each.due_s]:
            body.give_up()
        self._looking = bool(self._waiting)
        if self._looking:
            asyncio.get_running_loop().call_later(LOOK_S, self._look)


class SteadyBody:
    """Receives a request, and gives up on a body that stalls or trickles.

    A pause may last `BODY_IDLE_S`; after `BODY_GRACE_S` the average counts too. The time that the
    coordinator itself takes between two pieces is not the sender's. With `held`, what arrived
    counts as held in memory until `release`.
    """

    __slots__ = (
        *("_bytes", "_held", "_held_bytes", "_late", "_receive", "_task", "_waited_s", "_watch"),
        *("_whole", "due_s"),
    )

    def __init__(self, receive: Receive, watch: BodyWatch, held: HeldBytes | None = None) -> None:
        self._receive = receive
        self._watch = watch
        self._held = held
        self._held_bytes = 0
        self._whole = False
        self._late = False
        self._waited_s = 0.0
        self._bytes = 0
        self._task: asyncio.Task[object] | None = None
        self.due_s = 0.0

    async def __call__(self) -> Message:
        """Return what arrives next; raise TooSlow."""
        if self._whole:
            return await self._receive()
        began_s = time.monotonic()
        left_s = BODY_GRACE_S + self._bytes / MIN_BODY_BYTES_PER_S - self._waited_s
        self.due_s = began_s + min(BODY_IDLE_S, left_s)
        self._task = asyncio.current_task()
        self._watch.add(self)
        try:
            message = await self._receive()
        except asyncio.CancelledError:
            self._refuse_late()
            raise
        finally:
            self._watch.remove(self)
        self._waited_s += time.monotonic() - began_s
        if message["type"] == "http.request":
            self._hold(len(message.get("body", b"")))
            self._whole = not message.get("more_body", False)
        return message

    def _hold(self, size_bytes: int) -> None:
        self._bytes += size_bytes
        if self._held is not None:
            self._held.take(size_bytes)
            self._held_bytes += size_bytes

    def release(self) -> None:
        """Count what arrived as held no longer."""
        if self._held is not None:
            self._held.give(self._held_bytes)

    def give_up(self) -> None:
        """End the wait."""
        if self._task is not None and not self._late:
            self._late = True
            self._task.cancel()

    def _refuse_late(self) -> None:
        """Raise TooSlow where the wait was ended by `give_up` alone, and by nobody else."""
        if self._late and self._task is not None and self._task.uncancel() == 0:
            raise TooSlow(
                f"the body came too slowly: within {BODY_IDLE_S:g} s something must arrive, on "
                f"average {MIN_BODY_BYTES_PER_S:g} bytes a second; send it again"
            ) from None


def has_body(scope: Scope) -> bool:
    """Whether a request may bring a body."""
    return scope["method"] not in {"GET", "HEAD", "OPTIONS"}


def is_streamed(scope: Scope) -> bool:
    """Whether a body goes to disk as it comes, in place of being held."""
    path = scope["path"].removeprefix(scope.get("root_path", ""))
    return scope["method"] == "PUT" and not path.startswith(OUTPUT)
