"""Reading the SQLite ledger beside its writer: a connection of its own, which sees what is durable.

Each question is one step of SQLite, which runs without the interpreter's lock: no row-by-row turns
with the thread that serves requests. Used from one thread at a time.
"""

import sqlite3
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple
from urllib.parse import quote

from flashruntime.errors import NotFound, StoreUnavailable
from flashruntime.protocol.base import strict_dumps
from flashruntime.protocol.events import EventType

CACHE_KIB = 2 * 1024
CHUNK_BYTES = 1024 * 1024
HISTORY_BYTES = 16 * 1024 * 1024
_FIELD, _LINE = "\x1f", "\n"
# Of a lapsed lease the instant at which its holder was last heard, of an ended attempt its step.
_EVENTS = """SELECT group_concat(line, char(10)) FROM (
    SELECT event_id||:f||type||:f||ifnull(job_id,'')||:f||ifnull(task_id,'')||:f
        ||ifnull(lease_id,'')||:f||at||:f||mono_ns||:f||boot_id||:f
        ||ifnull(CASE WHEN type='LEASE_EXPIRED' THEN (SELECT deadline_ns-lease_ns
            FROM leases WHERE leases.lease_id=events.lease_id) END,'')||:f
        ||ifnull(CASE WHEN type='TASK_REQUEUED' THEN (SELECT step
            FROM leases WHERE leases.lease_id=events.lease_id) END,'')||:f||data AS line
    FROM events WHERE {where} ORDER BY event_id {order} LIMIT :limit)"""
_JOBS = """SELECT json_group_array(json_object('job_id',job_id,'name',name,'state',state,
    'reason',reason,'created_at',created_at,'finished_at',finished_at,'tasks',json_object(
    'PENDING',pending,'LEASED',leased,'COMPLETED',completed,'FAILED',failed,'CANCELLED',cancelled)))
    FROM (SELECT * FROM (SELECT * FROM jobs WHERE state IN ('PENDING','RUNNING')
        ORDER BY seq DESC LIMIT :limit)
    UNION SELECT * FROM (SELECT * FROM jobs ORDER BY seq DESC LIMIT :limit) ORDER BY seq DESC)"""
DEPTH = """SELECT count(*), ifnull(sum(pending),0), ifnull(sum(leased),0) FROM jobs
    WHERE state IN ('PENDING','RUNNING')"""
_GRID = """SELECT group_concat(mark,''), group_concat(tries,'') FROM (
    SELECT CASE WHEN state='CANCELLED' THEN 'X' WHEN state='PENDING' AND not_before_ns>0 THEN 'W'
        ELSE substr(state,1,1) END AS mark, min(attempts,9) AS tries
    FROM tasks WHERE task_id>:low AND task_id<:high ORDER BY task_id)"""


class LedgerEvent(NamedTuple):
    """An event as it stands in the ledger, with what is known of the lease that it is about.

    `heard_ns` is when the holder of a lapsed lease was last heard, `step` the last step of an
    attempt whose task was requeued.
    """

    id: int
    type: str
    job_id: str | None
    task_id: str | None
    lease_id: str | None
    at: str
    mono_ns: int
    boot_id: str
    heard_ns: int | None
    step: int | None
    data_json: str

    def wire(self) -> str:
        """Return the event as JSON, with the fields of the wire model."""
        head = strict_dumps(
            {
                "id": self.id,
                "job_id": self.job_id,
                "task_id": self.task_id,
                "lease_id": self.lease_id,
                "type": self.type,
                "at": self.at,
                "mono_ns": self.mono_ns,
                "boot_id": self.boot_id,
            }
        )
        return f'{head[:-1]},"data":{self.data_json}}}'


class Found(NamedTuple):
    """Events in their order; `all` of those asked for, or the first ones."""

    events: list[LedgerEvent]
    all: bool


class _TooLarge(Exception):
    """An answer is longer than its bound."""


class Depth(NamedTuple):
    """What the open jobs have before them, from the counts that each job keeps."""

    jobs: int
    pending: int
    leased: int


class Grid(NamedTuple):
    """The tasks of a job by index, one character each.

    `states`: P pending, W waiting out a pause, L leased, C completed, F failed, X cancelled.
    `attempts`: a digit, 9 for nine and more.
    """

    states: str
    attempts: str


class LedgerReader:
    """Answers what is seen from outside; StoreUnavailable if the ledger cannot be read."""

    def __init__(self, path: Path) -> None:
        address = f"file:{quote(str(path.absolute()))}?mode=ro"
        self._path = path
        try:
            self._db = sqlite3.connect(
                address, uri=True, isolation_level=None, check_same_thread=False
            )
            self._db.execute(f"PRAGMA cache_size=-{CACHE_KIB}")
        except sqlite3.Error as error:
            raise self._unreadable(error) from error

    def close(self) -> None:
        """Close the connection."""
        self._db.close()

    def last_id(self) -> int:
        """Return the id of the newest event, 0 without any."""
        (found,) = self._one("SELECT ifnull(max(event_id),0) FROM events", {})
        return int(str(found))

    def events(
        self,
        after: int,
        limit: int,
        *,
        job_id: str | None = None,
        task_id: str | None = None,
        without: Sequence[EventType] = (),
    ) -> Found:
        """Return events with ids above `after`, in order."""
        where = _where(job_id, task_id, without)
        named = {"after": after, "job_id": job_id, "task_id": task_id}
        return self._events(_EVENTS.format(where=where, order="ASC"), limit, named)

    def news(
        self, after: int, limit: int, without: Sequence[EventType]
    ) -> tuple[Depth, Found, int]:
        """Return the depth, the events beyond `after`, and the id up to which they are all."""
        until = self.last_id()
        found = self.events(after, limit, without=without) if until > after else Found([], True)
        last = [event.id for event in found.events[-1:]]
        return self.depth(), found, max([until, *last]) if found.all else last[0]

    def newest(
        self, limit: int, job_id: str | None = None, without: Sequence[EventType] = ()
    ) -> list[LedgerEvent]:
        """Return the newest events, in order; fewer than `limit` where they are large."""
        where = _where(job_id, None, without)
        named = {"after": 0, "job_id": job_id}
        found = self._events(_EVENTS.format(where=where, order="DESC"), limit, named, HISTORY_BYTES)
        return found.events

    def jobs(self, limit: int) -> str:
        """Return the newest jobs and the newest open ones, newest first, as a JSON list."""
        (found,) = self._one(_JOBS, {"limit": limit})
        return str(found)

    def depth(self) -> Depth:
        """Return how much the open jobs have before them."""
        jobs, pending, leased = self._one(DEPTH, {})
        return Depth(int(str(jobs)), int(str(pending)), int(str(leased)))

    def grid(self, job_id: str) -> Grid:
        """Return the states of a job's tasks; NotFound."""
        states, attempts = self._one(_GRID, {"low": f"{job_id}-", "high": f"{job_id}."})
        if states is None:
            raise NotFound(f"no job {job_id!r}")
        return Grid(str(states), str(attempts))

    def _events(
        self, sql: str, limit: int, named: Mapping[str, object], most: int = CHUNK_BYTES
    ) -> Found:
        """Return events of `most` bytes in all, or a single one of any size."""
        bound = self._db.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, most)
        try:
            while True:
                try:
                    (text,) = self._one(sql, {**named, "limit": limit, "f": _FIELD})
                except _TooLarge:
                    limit //= 2
                    if limit <= 1:
                        self._db.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, bound)
                        limit = 1
                else:
                    break
        finally:
            self._db.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, bound)
        events = [] if text is None else sorted(map(_event, str(text).split(_LINE)))
        return Found(events, len(events) < limit)

    def _one(self, sql: str, named: Mapping[str, object]) -> tuple[object, ...]:
        try:
            found: tuple[object, ...] = self._db.execute(sql, named).fetchone()
        except sqlite3.Error as error:
            if error.sqlite_errorcode == sqlite3.SQLITE_TOOBIG:
                raise _TooLarge from error
            raise self._unreadable(error) from error
        return found

    def _unreadable(self, error: Exception) -> StoreUnavailable:
        return StoreUnavailable(
            f"the ledger {self._path} cannot be read: {error}. Check its disk and permissions"
        )


def _where(job_id: str | None, task_id: str | None, without: Sequence[EventType]) -> str:
    terms = ["event_id>:after"]
    if job_id is not None:
        terms.append("job_id=:job_id")
    if task_id is not None:
        terms.append("task_id=:task_id")
    if without:
        names = ",".join(f"'{kind.value}'" for kind in without)
        terms.append(f"type NOT IN ({names})")
    return " AND ".join(terms)


def _event(line: str) -> LedgerEvent:
    number, kind, job, task, lease, at, mono, boot, heard, step, data = line.split(_FIELD, 10)
    return LedgerEvent(
        int(number),
        kind,
        job or None,
        task or None,
        lease or None,
        at,
        int(mono),
        boot,
        int(heard) if heard else None,
        int(step) if step else None,
        data,
    )
