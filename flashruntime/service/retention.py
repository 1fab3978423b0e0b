"""When jobs, their output, old events and forgotten workers go."""

import logging
from datetime import datetime, timedelta

from flashruntime.config import KeepingSettings
from flashruntime.service.collector import collect
from flashruntime.service.core import Core

log = logging.getLogger(__name__)
PERIOD_S = 60.0
TIDY_AFTER = timedelta(hours=1)
NODES_NS = 3600 * 10**9
LOG_FILES = 200


class Retainer:
    """Deletes what is older than the settings say, and what users deleted, in small steps.

    Ages count on the wall clock, which may jump: never more than has passed since the start.
    """

    def __init__(self, core: Core) -> None:
        self._core = core
        self._settings: KeepingSettings = core.settings.keeping
        self._clock = core.clock
        self._nodes_ns: int | None = None
        self._began = (self._clock.utc_now(), self._clock.monotonic_ns())

    def _now(self) -> datetime:
        wall, mono_ns = self._began
        passed = timedelta(microseconds=(self._clock.monotonic_ns() - mono_ns) / 1_000)
        return min(self._clock.utc_now(), wall + passed)

    async def step(self) -> float | None:
        """Do one batch; None while there is more to do."""
        if await self._purge() or await self._retire() or await self._tidy():
            return None
        return PERIOD_S

    async def _purge(self) -> bool:
        """Delete some of what is left of a deleted job; its output last."""
        core = self._core
        purged = await core.ledger(core.manager.purge)
        if purged is None:
            return False
        await collect(core, purged.freed)
        if purged.done:
            job_id = purged.removal.job_id
            if await core.disk(core.logs.delete, job_id, LOG_FILES):
                return True
            await core.ledger(core.manager.end_removal, purged.removal)
            log.info("deleted a job", extra={"event": "job_deleted", "job_id": job_id})
        return True

    async def _retire(self) -> bool:
        manager, now = self._core.manager, self._now()
        await self._core.ledger(manager.forget_removals, now)
        await self._forget_nodes(now)
        if not self._settings.retention_days:
            return False
        before = now - timedelta(days=self._settings.retention_days)
        retired = await self._core.ledger(manager.retire, before)
        return bool(retired or await self._core.ledger(manager.forget_events, before))

    async def _forget_nodes(self, now: datetime) -> None:
        """Forget silent workers, once an hour: it goes over all of them."""
        age, now_ns = timedelta(days=self._settings.retention_node_days), self._clock.monotonic_ns()
        if not age or (self._nodes_ns is not None and now_ns - self._nodes_ns < NODES_NS):
            return
        self._nodes_ns = now_ns
        silent_s = age.total_seconds()
        await self._core.ledger(self._core.manager.forget_nodes, now - age, silent_s)

    async def _tidy(self) -> bool:
        """Drop what no result took up of jobs that ended a while ago."""
        core = self._core
        batch = await core.ledger(core.manager.tidy, self._now() - TIDY_AFTER)
        await collect(core, batch.freed)
        return batch.rows > 0
