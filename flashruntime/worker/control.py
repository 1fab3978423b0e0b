"""When to stop: the worker as a whole on a notice, an attempt also when its lease is lost."""

import random
from collections.abc import Callable, Iterator
from threading import Condition, Event, Thread
from typing import TypeVar

from flashruntime.clock import Clock, SystemClock
from flashruntime.errors import CoordinatorUnreachable, FlashError, Superseded, TokenRefused
from flashruntime.worker import events

FIRST_DELAY_S = 0.1
MAX_DELAY_S = 5.0
REFUSED_DELAY_S = 5.0

Answer = TypeVar("Answer")


class NoticeOver(FlashError):
    """The worker's time to leave is over."""


class StopRequest:
    """A request to leave, and the moment by which the process must have ended.

    One `above` another is a request to this one too, never the other way round: the worker as a
    whole leaves, or only the attempts that it has now.
    """

    def __init__(
        self, notice_s: float, clock: Clock | None = None, above: "StopRequest | None" = None
    ) -> None:
        self.notice_s = notice_s
        self.changed: Condition = Condition() if above is None else above.changed
        self._above = above
        self._clock = clock or SystemClock()
        self._deadline_ns: int | None = None

    @property
    def requested(self) -> bool:
        """Whether the worker is to leave."""
        return self._deadline_ns is not None or (self._above is not None and self._above.requested)

    def request(self) -> None:
        """Ask the worker to leave; only the first request sets the deadline."""
        with self.changed:
            if self._deadline_ns is None:
                self._deadline_ns = self._clock.monotonic_ns() + int(self.notice_s * 1e9)
            self.changed.notify_all()

    def remaining_s(self) -> float:
        """Return the seconds left; infinite before a request."""
        left_s = float("inf") if self._above is None else self._above.remaining_s()
        if self._deadline_ns is None:
            return left_s
        return min(left_s, max(0.0, (self._deadline_ns - self._clock.monotonic_ns()) / 1e9))

    def pause(self, delay_s: float) -> None:
        """Wait, and raise NoticeOver as soon as the worker is to leave."""
        with self.changed:
            if self.changed.wait_for(lambda: self.requested, delay_s):
                raise NoticeOver


def leave_in_time(stop: StopRequest, spare_s: float, leave: Callable[[], None]) -> None:
    """Call `leave` `spare_s` after the notice, whatever still waits for an answer or a disk."""

    def watch() -> None:
        with stop.changed:
            stop.changed.wait_for(lambda: stop.requested)
        Event().wait(stop.remaining_s() + spare_s)
        leave()

    Thread(target=watch, name="notice", daemon=True).start()


class AttemptControl:
    """What an attempt reacts to: the end of its process, the loss of its lease, a stop request."""

    def __init__(self, stop: StopRequest) -> None:
        self.stop = stop
        self.lost: str | None = None
        self._ended = False

    def lose(self, why: str) -> None:
        """Record that the lease is lost."""
        with self.stop.changed:
            self.lost = self.lost or why
            self.stop.changed.notify_all()

    def process_ended(self) -> None:
        """Record that the process has ended."""
        with self.stop.changed:
            self._ended = True
            self.stop.changed.notify_all()

    def await_change(self) -> None:
        """Wait for the end of the process, the loss of the lease or a stop request."""
        with self.stop.changed:
            self.stop.changed.wait_for(lambda: self._ended or self.lost or self.stop.requested)

    def await_end_or_loss(self, timeout_s: float) -> None:
        """Wait for the end of the process or the loss of the lease."""
        with self.stop.changed:
            self.stop.changed.wait_for(lambda: self._ended or self.lost, timeout_s)

    def check(self) -> None:
        """Raise Superseded if the lease is lost, NoticeOver if the worker's time is over."""
        if self.lost is not None:
            raise Superseded(self.lost)
        if self.stop.remaining_s() <= 0:
            raise NoticeOver

    def pause(self, delay_s: float) -> None:
        """Wait until `delay_s` have passed or nothing more can be done, then check."""
        with self.stop.changed:
            wait_s = min(delay_s, self.stop.remaining_s())
            self.stop.changed.wait_for(lambda: self.lost is not None, wait_s)
        self.check()

    def until_answered(self, call: Callable[[], Answer]) -> Answer:
        """Repeat `call` until the coordinator answers, or as `check` says."""
        return until_answered(call, self.pause)


def delays_s(first_s: float = FIRST_DELAY_S, most_s: float = MAX_DELAY_S) -> Iterator[float]:
    """Yield growing delays with full jitter, without end."""
    ceiling_s = first_s
    while True:
        yield random.uniform(ceiling_s / 2, ceiling_s)
        ceiling_s = min(most_s, ceiling_s * 2)


def until_answered(
    call: Callable[[], Answer],
    pause: Callable[[float], None],
    refused: Callable[[float], None] | None = None,
) -> Answer:
    """Repeat `call` while the coordinator cannot be reached; `pause` raises to end that.

    A token that is not known now may be so later, for tokens are replaced while workers run:
    `refused` (default: `pause`) waits for that.
    """
    for delay_s in delays_s():
        try:
            return call()
        except CoordinatorUnreachable as error:
            pause(max(delay_s, min(error.retry_after_s, MAX_DELAY_S)))
        except TokenRefused as error:
            events.warning("token_refused", error=str(error), retry_in_s=REFUSED_DELAY_S)
            (refused or pause)(REFUSED_DELAY_S)
    raise AssertionError("delays never end")
