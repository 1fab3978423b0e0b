"""Events as server-sent events: resumable from any id, without loss or repetition.

A stream is a position in the ledger, nothing more: it sends what the feed still keeps, and reads
the ledger for what lies further back. A reader that is slow therefore costs no memory.
"""

import asyncio
import json
from collections.abc import AsyncGenerator, Iterable
from dataclasses import dataclass
from weakref import WeakSet

from flashruntime.errors import StoreUnavailable
from flashruntime.leases.sqlite_reader import Found, LedgerEvent, LedgerReader
from flashruntime.protocol.events import EventType
from flashruntime.service.feed import LEFT_OUT, Feed
from flashruntime.service.observe import Observed

MEDIA_TYPE = "text/event-stream"
HEARTBEAT_S = 5.0
RETRY_MS = 1_000
CHUNK = 200
MAX_STREAMS = 256


class TooManyStreams(StoreUnavailable):
    """As many event streams are open as this coordinator serves; try again later."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """Which events a stream carries.

    `brief` leaves out the ends of logs that failures carry.
    """

    job_id: str | None = None
    created: bool = True
    brief: bool = False

    def chosen(self, event: LedgerEvent) -> bool:
        """Whether the stream carries this event."""
        return (self.job_id is None or event.job_id == self.job_id) and (
            self.created or event.type not in LEFT_OUT
        )


class EventStreams:
    """The open streams of one coordinator."""

    def __init__(self, feed: Feed, closing: asyncio.Event, observed: Observed) -> None:
        self._feed = feed
        self._closing = closing
        self._observed = observed
        self.heartbeat_s = HEARTBEAT_S
        self.most = MAX_STREAMS
        self._opening = 0
        # One that its client leaves before it begins never ends either; it only goes.
        self._given: WeakSet[AsyncGenerator[bytes, None]] = WeakSet()

    async def open(self, wanted: Wanted, after: int) -> AsyncGenerator[bytes, None]:
        """Return a stream of the events beyond the id `after`; TooManyStreams."""
        if len(self._given) + self._opening >= self.most:
            raise TooManyStreams(
                f"{self.most} event streams are open, the most that are served; close one, or "
                "read the events in pages"
            )
        self._opening += 1
        try:
            await self._feed.refresh()
        finally:
            self._opening -= 1
        lines = self._lines(wanted, min(after, self._feed.recent.last_id))
        self._given.add(lines)
        return lines

    async def _lines(self, wanted: Wanted, cursor: int) -> AsyncGenerator[bytes, None]:
        self._observed.streams += 1
        try:
            yield f"retry: {RETRY_MS}\nid: {cursor}\n\n".encode()
            while not self._closing.is_set():
                moved = self._feed.moved.next()
                events, through = await self._following(wanted, cursor)
                if events:
                    yield "".join(sse(event, wanted.brief) for event in events).encode()
                if through > cursor:
                    cursor = through
                elif not await _fires(moved, self.heartbeat_s):
                    yield f": no news\nid: {cursor}\n\n".encode()
        finally:
            self._observed.streams -= 1

    async def _following(self, wanted: Wanted, cursor: int) -> tuple[list[LedgerEvent], int]:
        """Return the next events, and the id up to which the stream is now complete."""
        newest = self._feed.recent.last_id
        kept = self._feed.recent.after(cursor, CHUNK)
        if kept is None or (wanted.created and not _gapless(kept, cursor, newest)):
            without = () if wanted.created else LEFT_OUT
            found = await self._feed.ask(
                LedgerReader.events, cursor, CHUNK, job_id=wanted.job_id, without=without
            )
            return found.events, _through(found, newest)
        return [event for event in kept.events if wanted.chosen(event)], _through(kept, newest)


def _through(found: Found, newest: int) -> int:
    """Return the id up to which nothing else has happened that was asked for."""
    last = [event.id for event in found.events[-1:]]
    return max([newest, *last]) if found.all else last[0]


def _gapless(found: Found, cursor: int, newest: int) -> bool:
    """Whether these are all events there are, those that the feed leaves out included."""
    return _through(found, newest) - cursor == len(found.events)


def sse(event: LedgerEvent, brief: bool) -> str:
    """Return an event as a block of the stream."""
    return f"id: {event.id}\ndata: {event_json(event, brief)}\n\n"


def event_json(event: LedgerEvent, brief: bool) -> str:
    """Return an event as JSON; `brief` leaves out the end of the log that a failure carries."""
    if brief and event.type == EventType.TASK_ATTEMPT_FAILED:
        data = json.loads(event.data_json)
        if isinstance(data.get("evidence"), dict):
            data["evidence"].pop("log_tail", None)
        event = event._replace(data_json=json.dumps(data, allow_nan=False))
    return event.wire()


def page_json(events: Iterable[LedgerEvent], last_id: int) -> str:
    """Return events as a page, in brief."""
    items = ",".join(event_json(event, brief=True) for event in events)
    return f'{{"items":[{items}],"last_id":{last_id}}}'


async def _fires(event: asyncio.Event, timeout_s: float) -> bool:
    try:
        await asyncio.wait_for(event.wait(), timeout_s)
    except TimeoutError:
        return False
    return True
