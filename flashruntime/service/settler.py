"""Brings the files of small objects to the disk, many at a time, and out of the ledger."""

import asyncio
import logging
from contextlib import suppress

from flashruntime.errors import StoreUnavailable
from flashruntime.service.core import Core
from flashruntime.service.small_puts import BATCH

log = logging.getLogger(__name__)
PERIOD_S = 1.0


class Settler:
    """Settles what is spooled once a second, and a last time when the coordinator closes."""

    def __init__(self, core: Core) -> None:
        self._core = core
        self._failed = False

    async def run(self) -> None:
        """Settle until `closing` is set."""
        while not self._core.closing.is_set():
            with suppress(TimeoutError):
                await asyncio.wait_for(self._core.closing.wait(), PERIOD_S)
            await self._tick()

    async def _tick(self) -> None:
        try:
            if self._failed:
                await self._core.ledger(self._core.small.restore)
            while await self.settle():
                pass
        except StoreUnavailable as error:
            if not self._failed:
                log.error("%s", error, extra={"event": "store_unavailable"})
            self._failed = True
        except Exception:  # (task boundary: the ledger still holds all bytes)
            if not self._failed:
                log.exception("settling failed", extra={"event": "settle_failed"})
            self._failed = True
        else:
            self._failed = False

    async def settle(self) -> bool:
        """Bring the oldest spooled objects to the disk; return whether there may be more."""
        core = self._core
        spooled = await core.ledger(core.manager.spooled, 0, BATCH)
        if spooled:
            await core.disk(core.small.sync, [each.sha256 for each in spooled])
            await core.ledger(core.manager.unspool, spooled[-1].number)
        return len(spooled) == BATCH
