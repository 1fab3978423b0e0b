"""What a coordinator does beside its work: retention, collecting what nothing refers to, scrubbing.

Each chore goes in small steps and rests after each for longer than it took, so that requests are
never held up.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from time import monotonic

from flashruntime.errors import StoreUnavailable
from flashruntime.service.collector import Collector
from flashruntime.service.core import Core
from flashruntime.service.retention import Retainer
from flashruntime.service.scrub import Scrubber
from flashruntime.service.waiting import Signal, first_of

log = logging.getLogger(__name__)
START_S = 2.0
RETRY_S = 5.0
REST = 3.0
MIN_REST_S = 0.01
MAX_REST_S = 0.25

# A step of a chore: returns the seconds until the next one, None for at once (after its rest).
Step = Callable[[], Awaitable[float | None]]


class Housekeeping:
    """Runs all chores until the coordinator closes."""

    def __init__(self, core: Core, start_s: float = START_S) -> None:
        self._core = core
        self._start_s = start_s
        self.retainer = Retainer(core)
        self.collector = Collector(core)
        self.scrubber = Scrubber(core)

    async def run(self) -> None:
        """Do the chores until `closing` is set."""
        await asyncio.gather(
            self._repeat(self.retainer.step, self._core.care.work),
            self._repeat(self.collector.step, Signal()),
            self._repeat(self.scrubber.step, Signal()),
        )

    async def _repeat(self, step: Step, work: Signal) -> None:
        closing, failing = self._core.closing, False
        pause_s: float | None = self._start_s
        woken = work.next()
        while True:
            if pause_s is not None:
                await first_of(closing, woken, timeout_s=pause_s)
            woken = work.next()
            if closing.is_set():
                return
            began_s = monotonic()
            try:
                pause_s = await step()
                failing = False
            except StoreUnavailable:
                pause_s = RETRY_S
            except Exception:  # (task boundary: the coordinator works on without this chore)
                if not failing:
                    log.exception("a chore failed", extra={"event": "housekeeping_failed"})
                failing, pause_s = True, RETRY_S
            if pause_s is None:
                rest_s = min(MAX_REST_S, max(MIN_REST_S, REST * (monotonic() - began_s)))
                await first_of(closing, timeout_s=rest_s)
