"""What is seen from outside: the overview, a job's tasks at a glance, history, streams, metrics."""

import asyncio
import logging
import secrets
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path

from flashruntime import __version__
from flashruntime.errors import FlashError
from flashruntime.leases.sqlite_reader import LedgerReader
from flashruntime.protocol.base import strict_dumps
from flashruntime.service.feed import LEFT_OUT, Feed
from flashruntime.service.observe import Observed
from flashruntime.service.stream import EventStreams, page_json

log = logging.getLogger(__name__)
JOBS_SHOWN = 200
OVERVIEW_PERIOD_S = 0.2


class Watching:
    """Answers from the ledger's reader, never from the thread that changes the ledger."""

    def __init__(self, ledger: Path, closing: asyncio.Event, observed: Observed) -> None:
        self._closing = closing
        self._observed = observed
        self.registry = observed.registry
        self._feed = Feed(ledger, observed)
        self.streams = EventStreams(self._feed, closing, observed)
        self._instance = secrets.token_hex(8)
        self._started_at = datetime.now(UTC)
        self._one_asks = asyncio.Lock()
        self._jobs = ""
        self._jobs_of = -1
        self._jobs_due_s = 0.0

    @asynccontextmanager
    async def running(self, changed: asyncio.Event) -> AsyncIterator[None]:
        """Follow the ledger inside the block; `changed` is set after each of its changes."""
        await self._feed.open()
        tasks = [
            asyncio.create_task(self._feed.run(changed, self._closing)),
            asyncio.create_task(self._observed.measure_lag(self._closing)),
            asyncio.create_task(self._end(changed)),
        ]
        try:
            yield
        finally:
            self._closing.set()
            await asyncio.gather(*tasks, return_exceptions=True)
            await self._feed.close()

    async def _end(self, changed: asyncio.Event) -> None:
        """Wake at the end whatever waits for news."""
        await self._closing.wait()
        changed.set()
        self._feed.moved.fire()

    async def overview(self) -> str:
        """Return the coordinator and its newest and open jobs as JSON.

        However many ask, the ledger is read a few times a second, and no answer is behind it.
        """
        async with self._one_asks:
            if self._jobs_of != self._feed.recent.last_id:
                await asyncio.sleep(self._jobs_due_s - time.monotonic())
                await self._ask_jobs()
        depth = self._observed.depth
        head = {
            "coordinator": {
                "instance": self._instance,
                "version": __version__,
                "started_at": self._started_at.isoformat(),
                "event_streams": self._observed.streams,
            },
            "now": datetime.now(UTC).isoformat(),
            "last_event_id": self._jobs_of,
            "open": {"jobs": depth.jobs, "PENDING": depth.pending, "LEASED": depth.leased},
        }
        return f'{strict_dumps(head)[:-1]},"jobs":{self._jobs}}}'

    async def _ask_jobs(self) -> None:
        self._jobs_due_s = time.monotonic() + OVERVIEW_PERIOD_S
        newest = self._feed.recent.last_id
        self._jobs = await self._feed.ask(LedgerReader.jobs, JOBS_SHOWN)
        self._jobs_of = newest

    async def grid(self, job_id: str) -> str:
        """Return the states and attempts of a job's tasks, one character each; NotFound."""
        last_id = self._feed.recent.last_id
        grid = await self._feed.ask(LedgerReader.grid, job_id)
        return strict_dumps({"job_id": job_id, "last_event_id": last_id, **grid._asdict()})

    async def history(self, job_id: str | None, limit: int) -> str:
        """Return the newest events but those of created tasks, in order and in brief."""
        last_id = self._feed.recent.last_id
        found = await self._feed.ask(LedgerReader.newest, limit, job_id, LEFT_OUT)
        return page_json(found, found[-1].id if found else last_id)

    async def task_events(self, job_id: str, index: int, limit: int) -> str:
        """Return the first events of a task, in order and in brief."""
        task_id = f"{job_id}-{index:05d}"
        found = await self._feed.ask(LedgerReader.events, 0, limit, job_id=job_id, task_id=task_id)
        return page_json(found.events, found.events[-1].id if found.events else 0)

    def stepped(self, lease_id: str, step: int | None) -> None:
        """Hear of the progress that a renewed attempt states."""
        self._observed.stepped(lease_id, step, time.monotonic_ns())

    async def metrics(self) -> str:
        """Return all metrics in Prometheus' text format, with all that is durable now."""
        try:
            await self._feed.refresh()
        except FlashError as error:
            log.warning("%s", error, extra={"event": "metrics_behind"})
        return self._observed.registry.text()
