"""What happens by time alone: leases lapse, and tasks that wait become due."""

import asyncio
import logging
import time
from collections.abc import Callable

from flashruntime.errors import StoreUnavailable
from flashruntime.service.core import Core

log = logging.getLogger(__name__)
PERIOD_S = 0.25
STALL_S = 2.0
NS_PER_S = 1_000_000_000


class Sweeper:
    """Sweeps at every deadline, at least four times a second, until the coordinator closes.

    After a stall (this process was stopped, or its disk took nothing) no holder can have been
    heard: live leases get their full time again instead of lapsing.
    """

    def __init__(self, core: Core, awake_s: Callable[[], float] = time.monotonic) -> None:
        self._core = core
        self._awake_s = awake_s
        self._swept_s = awake_s()
        self._due_ns: int | None = None
        self._failing = False

    async def run(self) -> None:
        """Sweep until `closing` is set."""
        while not self._core.closing.is_set():
            pause_s = await self._tick()
            try:
                await asyncio.wait_for(self._core.closing.wait(), pause_s)
            except TimeoutError:
                continue

    async def _tick(self) -> float:
        try:
            changed, self._due_ns, self._swept_s = await self._core.ledger(self._sweep)
        except StoreUnavailable as error:
            if not self._failing:
                log.error("%s", error, extra={"event": "store_unavailable"})
            self._failing = True
            return PERIOD_S
        except Exception:  # (task boundary: without sweeps no lease would ever lapse)
            if not self._failing:
                log.exception("sweeping failed", extra={"event": "sweep_failed"})
            self._failing = True
            return PERIOD_S
        if self._failing:
            log.warning("the ledger can be written again", extra={"event": "store_available"})
        self._failing = False
        if changed:
            self._core.work.fire()
        if self._due_ns is None:
            return PERIOD_S
        ahead_s = (self._due_ns - self._core.clock.monotonic_ns()) / NS_PER_S
        return min(PERIOD_S, max(0.001, ahead_s))

    def _sweep(self) -> tuple[bool, int | None, float]:
        """Lapse what is over; return whether a task may have become claimable, what is due, when.

        Nothing is noted here: the commit is still to come.
        """
        passed = self._due_ns is not None and self._due_ns <= self._core.clock.monotonic_ns()
        stalled_s = self._awake_s() - self._swept_s
        if stalled_s > STALL_S:
            live = self._core.manager.rearm()
            stall = {"event": "coordinator_stalled", "stalled_s": stalled_s, "live_leases": live}
            log.warning("no lease lapses for the time of a stall", extra=stall)
        moved = self._core.manager.sweep()
        return passed or moved > 0, self._core.manager.next_due_ns(), self._awake_s()
