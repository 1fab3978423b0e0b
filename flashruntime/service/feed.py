"""The ledger's events as they become durable: one reader for the metrics and for all streams.

Events of created tasks are left out here: a job of 100,000 tasks would drown all others.
"""

import asyncio
import logging
from bisect import bisect_right
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Concatenate, ParamSpec, TypeVar

from flashruntime.errors import FlashError
from flashruntime.leases.sqlite_reader import CHUNK_BYTES, Found, LedgerEvent, LedgerReader
from flashruntime.protocol.events import EventType
from flashruntime.service.observe import Observed
from flashruntime.service.waiting import Signal

P = ParamSpec("P")
T = TypeVar("T")
log = logging.getLogger(__name__)
LEFT_OUT = (EventType.TASK_CREATED,)
BATCH = 500
COALESCE_S = 0.04
RETRY_S = 1.0
MAX_KEPT = 4_096
MAX_KEPT_BYTES = 8 * 1024 * 1024


class Recent:
    """The newest events, of bounded number and size."""

    def __init__(self, last_id: int) -> None:
        self.begins_after = last_id
        self.last_id = last_id
        self._ids: list[int] = []
        self._events: list[LedgerEvent] = []
        self._bytes = 0

    def add(self, events: Sequence[LedgerEvent], last_id: int) -> None:
        """Append events; nothing else happened up to `last_id`."""
        self._events += events
        self._ids += [event.id for event in events]
        self._bytes += sum(len(event.data_json) for event in events)
        self.last_id = last_id
        if len(self._ids) > 2 * MAX_KEPT or self._bytes > MAX_KEPT_BYTES:
            self._forget()

    def _forget(self) -> None:
        kept, total = 0, 0
        for event in reversed(self._events[-MAX_KEPT:]):
            total += len(event.data_json)
            if total > MAX_KEPT_BYTES // 2:
                break
            kept += 1
        gone = len(self._ids) - kept
        self.begins_after = self._ids[gone - 1]
        del self._ids[:gone], self._events[:gone]
        self._bytes = sum(len(event.data_json) for event in self._events)

    def after(self, event_id: int, limit: int) -> Found | None:
        """Return the next of what follows an id; None where it lies before all that is kept."""
        if event_id < self.begins_after:
            return None
        at = bisect_right(self._ids, event_id)
        chosen, left_bytes = self._events[at : at + limit], CHUNK_BYTES
        for number, event in enumerate(chosen):
            left_bytes -= len(event.data_json)
            if left_bytes < 0:
                del chosen[max(1, number) :]
                break
        return Found(chosen, at + len(chosen) >= len(self._events))


class Feed:
    """Follows the ledger; `moved` fires when there are new events, and at the end."""

    def __init__(self, ledger: Path, observed: Observed) -> None:
        self._path = ledger
        self._observed = observed
        self._thread = ThreadPoolExecutor(1, "reader")
        self._one_at_a_time = asyncio.Lock()
        self.moved = Signal()
        self.recent = Recent(0)

    async def open(self) -> None:
        """Begin after what is in the ledger now."""
        self._reader = await self._run(LedgerReader, self._path)
        self.recent = Recent(await self.ask(LedgerReader.last_id))
        self._observed.ledger = self._path

    async def close(self) -> None:
        """Give up the connection."""
        await self.ask(LedgerReader.close)
        self._thread.shutdown()

    async def ask(
        self,
        question: Callable[Concatenate[LedgerReader, P], T],
        *args: P.args,
        **named: P.kwargs,
    ) -> T:
        """Ask the reader on its thread."""
        return await self._run(partial(question, self._reader, *args, **named))

    async def _run(self, call: Callable[P, T], *args: P.args, **named: P.kwargs) -> T:
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._thread, partial(call, *args, **named))

    async def refresh(self) -> None:
        """Take in everything that was durable before this call."""
        async with self._one_at_a_time:
            begun = self.recent.last_id
            while True:
                after = self.recent.last_id
                found = await self.ask(LedgerReader.news, after, BATCH, LEFT_OUT)
                self._observed.depth, news, until = found
                self._observed.happened(news.events)
                self.recent.add(news.events, max(after, until))
                if news.all:
                    break
        if self.recent.last_id > begun:
            self.moved.fire()

    async def run(self, changed: asyncio.Event, closing: asyncio.Event) -> None:
        """Refresh after each change, many at once where they are many, until `closing` is set."""
        failing = False
        while not closing.is_set():
            await changed.wait()
            changed.clear()
            try:
                await self.refresh()
                failing = False
            except FlashError as error:
                if not failing:
                    log.error("%s", error, extra={"event": "feed_unavailable"})
                failing = True
            try:
                await asyncio.wait_for(closing.wait(), RETRY_S if failing else COALESCE_S)
            except TimeoutError:
                continue
