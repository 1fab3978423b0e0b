"""The rows that were used last, kept beside the connection that alone writes to the file."""

import re
import sqlite3
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import lru_cache
from typing import Any, TypeVar

from flashruntime.leases.record import JobRow, LeaseRow, TaskRow
from flashruntime.leases.sqlite_transaction import SqliteTransaction

V = TypeVar("V")
KEPT_ROWS = 16_384
_UPDATE_JOB = """UPDATE jobs SET state=?, reason=?, finished_at=?,
    pending=?, leased=?, completed=?, failed=?, cancelled=? WHERE job_id=?"""
_ALTERS = re.compile(
    r"\s*(UPDATE|DELETE|REPLACE|INSERT\s+OR|WITH)\b.*\b(jobs|tasks|leases)\b", re.S | re.I
)


class LedgerConnection(sqlite3.Connection):
    """Tells `altered` before a statement that may change or remove jobs, tasks or leases."""

    altered: Callable[[], None] | None = None

    def execute(self, sql: str, parameters: Any = (), /) -> sqlite3.Cursor:
        """Run a statement."""
        if self.altered is not None and _alters(sql):
            self.altered()
        return super().execute(sql, parameters)

    def executemany(self, sql: str, parameters: Iterable[Any], /) -> sqlite3.Cursor:
        """Run a statement for each of several values."""
        if self.altered is not None and _alters(sql):
            self.altered()
        return super().executemany(sql, parameters)


@lru_cache(1_000)
def _alters(sql: str) -> bool:
    return _ALTERS.match(sql) is not None


class Kept(dict[str, V]):
    """A dictionary that drops its oldest entry beyond KEPT_ROWS."""

    def keep(self, key: str, value: V | None) -> V | None:
        """Make an entry the newest, unless it is None, and return its value."""
        if value is not None:
            self.pop(key, None)
            self[key] = value
            if len(self) > KEPT_ROWS:
                del self[next(iter(self))]
        return value


class KeptTransaction(SqliteTransaction):
    """Answers for jobs, tasks and leases from what was read or written last.

    Whatever changes such rows otherwise, by any statement on the connection, is noticed, and all
    are read again; so they are after `forget`, which an undone change calls for.
    """

    def __init__(self, connection: LedgerConnection) -> None:
        super().__init__(connection)
        self._connection = connection
        self._jobs: Kept[JobRow] = Kept()
        self._tasks: Kept[TaskRow] = Kept()
        self._leases: Kept[LeaseRow] = Kept()
        connection.altered = self.forget

    def forget(self) -> None:
        """Read every row again from the file."""
        self._connection.altered = self.forget
        self._jobs.clear()
        self._tasks.clear()
        self._leases.clear()

    @contextmanager
    def _known(self) -> Iterator[None]:
        """Let a statement change one row, of which what it becomes is kept."""
        self._connection.altered = None
        try:
            yield
        finally:
            self._connection.altered = self.forget

    def job(self, job_id: str) -> JobRow | None:
        """Return a job."""
        return self._jobs.get(job_id) or self._jobs.keep(job_id, super().job(job_id))

    def put_job(self, job: JobRow) -> None:
        """Replace a job: its state, reason, end and counts."""
        finished = None if job.finished_at is None else job.finished_at.isoformat()
        counts = job.counts
        numbers = (counts.pending, counts.leased, counts.completed, counts.failed, counts.cancelled)
        values = (job.state.value, job.reason, finished, *numbers, job.job_id)
        with self._known():
            self._db.execute(_UPDATE_JOB, values)
        self._jobs.keep(job.job_id, job)

    def task(self, task_id: str) -> TaskRow | None:
        """Return a task."""
        return self._tasks.get(task_id) or self._tasks.keep(task_id, super().task(task_id))

    def put_task(self, task: TaskRow) -> None:
        """Replace a task."""
        with self._known():
            super().put_task(task)
        self._tasks.keep(task.task_id, task)

    def lease(self, lease_id: str) -> LeaseRow | None:
        """Return a lease."""
        return self._leases.get(lease_id) or self._leases.keep(lease_id, super().lease(lease_id))

    def put_lease(self, lease: LeaseRow) -> None:
        """Insert or replace a lease."""
        with self._known():
            super().put_lease(lease)
        self._leases.keep(lease.lease_id, lease)
