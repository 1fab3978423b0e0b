"""Retention: what ended long ago leaves the ledger, in batches that hold nobody up.

A deleted job is invisible at once, with its idempotency key; its rows follow. Ages are counted on
the wall clock that the caller passes.
"""

import json
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta

from pydantic import JsonValue

from flashruntime.errors import Conflict
from flashruntime.leases.jsontext import clean, dumps
from flashruntime.leases.ledger import wanted_job
from flashruntime.leases.nodes import NodeRegistry
from flashruntime.leases.objects import is_output
from flashruntime.leases.record import EventDraft, JobRow
from flashruntime.leases.store import Transaction
from flashruntime.leases.store_keeping import Removal
from flashruntime.leases.transitions import NS_PER_S
from flashruntime.protocol.events import EventType
from flashruntime.protocol.nodes import NodeDuty

BATCH_ROWS = 200
TIDY_JOBS = 50
REMEMBERED = timedelta(days=7)
_TIDIED = "tidied"


@dataclass(frozen=True, slots=True)
class Batch:
    """How many rows a step went over, and the digests of which an object is gone."""

    rows: int
    freed: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Purged:
    """A step of a job's removal; `done` once its rows are gone, when its files may go too."""

    removal: Removal
    done: bool
    freed: tuple[str, ...] = ()


def _tasks(tx: Transaction, removal: Removal, limit: int) -> Batch:
    return Batch(tx.delete_tasks(removal.job_seq, limit))


def _events(tx: Transaction, removal: Removal, limit: int) -> Batch:
    return Batch(tx.delete_events(removal.job_id, None, limit))


def _outputs(tx: Transaction, removal: Removal, limit: int) -> Batch:
    """Delete outputs, but for those that another job takes as inputs."""
    after = ""
    while rows := tx.objects_below(removal.prefix, after, limit):
        unused = [row for row in rows if not (row.accepted and tx.jobs_with_input(row.key, 1))]
        for row in unused:
            tx.delete_object(row.key)
        if unused:
            return Batch(len(unused), tuple(row.sha256 for row in unused))
        after = rows[-1].key
    return Batch(0)


def _inputs(tx: Transaction, removal: Removal, limit: int) -> Batch:
    """Forget inputs, and delete those that were outputs of a job which is gone."""
    keys = tx.delete_inputs(removal.job_seq, limit)
    freed: list[str] = []
    for row in filter(None, map(tx.object, keys)):
        if row.job_id is None or tx.job(row.job_id) or tx.jobs_with_input(row.key, 1):
            continue
        tx.delete_object(row.key)
        freed.append(row.sha256)
    return Batch(len(keys), tuple(freed))


def _checkpoints(tx: Transaction, removal: Removal, limit: int) -> Batch:
    freed = tx.forget_checkpoints(removal.job_id, limit)
    return Batch(0) if freed is None else Batch(max(1, len(freed)), tuple(freed))


# In this order: without its task, no late call of an attempt can add another event or object.
PURGES: tuple[Callable[[Transaction, Removal, int], Batch], ...] = (
    _tasks,
    _checkpoints,
    _events,
    _outputs,
    _inputs,
)


class Retention(NodeRegistry):
    """Deletes jobs, and lets go of what is older than it must be."""

    def delete_job(self, job_id: str) -> None:
        """Delete a job that has ended, repeatably; NotFound, Conflict while it is open."""
        with self._store.transaction() as tx:
            if tx.removal(clean(job_id)) is not None:
                return
            job = wanted_job(tx, job_id)
            if not job.state.terminal:
                raise Conflict(f"job {job.job_id} is {job.state.value}: cancel it first")
            self._retire(tx, job, "deleted on request")

    def retire(self, before: datetime, limit: int = TIDY_JOBS) -> int:
        """Delete jobs that ended before an instant; return how many."""
        with self._store.transaction() as tx:
            jobs = tx.closed_jobs(None, before, limit)
            for job in jobs:
                self._retire(tx, job, "its time is over")
        return len(jobs)

    def _retire(self, tx: Transaction, job: JobRow, reason: str) -> None:
        tx.retire_job(job, self._clock.utc_now())
        data: dict[str, JsonValue] = {"job_id": job.job_id, "name": job.name, "reason": reason}
        self._append(tx, [EventDraft(EventType.JOB_DELETED, None, None, None, data)])

    def purge(self, limit: int = BATCH_ROWS) -> Purged | None:
        """Delete some rows of a deleted job; None if there is none left."""
        with self._store.transaction() as tx:
            removal = tx.next_removal()
            if removal is None:
                return None
            for step in PURGES:
                batch = step(tx, removal, limit)
                if batch.rows:
                    return Purged(removal, done=False, freed=batch.freed)
        return Purged(removal, done=True)

    def end_removal(self, removal: Removal) -> None:
        """Note that nothing is left of a deleted job."""
        with self._store.transaction() as tx:
            tx.end_removal(removal.job_seq)

    def tidy(self, before: datetime, limit: int = BATCH_ROWS) -> Batch:
        """Drop what no result took up of jobs that ended before an instant, each job once.

        `rows` is 0 when nothing is left to do.
        """
        with self._store.transaction() as tx:
            ended, seq, key = _place(tx.mark(_TIDIED))
            after = None if ended is None else (ended, seq)
            went_over = 0
            freed: list[str] = []
            for job in tx.closed_jobs(after, before, TIDY_JOBS):
                batch, key = _drop_unaccepted(tx, job, key, limit - went_over)
                went_over += batch.rows + 1
                freed += batch.freed
                if key:
                    break
                ended, seq = job.finished_at, job.seq
                if went_over >= limit:
                    break
            if went_over:
                at = None if ended is None else ended.isoformat()
                tx.put_mark(_TIDIED, dumps([at, seq, key], "mark"))
        return Batch(went_over, tuple(freed))

    def forget_events(self, before: datetime, limit: int = BATCH_ROWS) -> int:
        """Delete events about no job that are older than an instant; return how many."""
        with self._store.transaction() as tx:
            return tx.delete_events(None, before, limit)

    def forget_removals(self, now: datetime) -> int:
        """Forget jobs that were deleted a week ago: deleting them again is then NotFound."""
        with self._store.transaction() as tx:
            return tx.forget_removals(now - REMEMBERED)

    def forget_nodes(self, before: datetime, silent_s: float) -> int:
        """Delete nodes registered before an instant, without work, unheard for `silent_s`.

        One that an operator has cordoned or drained stays: what it was told outlives its silence.
        """
        now_ns = self._clock.monotonic_ns()
        with self._store.transaction() as tx:
            gone = [
                row.node_id
                for row in tx.nodes()
                if row.duty is NodeDuty.ACTIVE
                and row.registered_at < before
                and now_ns - self._seen_ns.get(row.node_id, self._started_ns) > silent_s * NS_PER_S
                and not tx.live_leases(row.node_id)
            ]
            for node_id in gone:
                tx.delete_node(node_id)
        return len(gone)


def _place(mark: str | None) -> tuple[datetime | None, int, str]:
    """Return the last job that was tidied, and the last key of the one after it."""
    if mark is None:
        return None, 0, ""
    at, seq, key = json.loads(mark)
    return None if at is None else datetime.fromisoformat(at), seq, key


def _drop_unaccepted(tx: Transaction, job: JobRow, after: str, limit: int) -> tuple[Batch, str]:
    """Drop a job's unaccepted objects; return with them the key to go on after, '' at the end."""
    rows = tx.objects_below(f"{job.output_prefix}/{job.job_id}", after, limit)
    dropped = [row for row in rows if not row.accepted and is_output(row.key)]
    for row in dropped:
        tx.delete_object(row.key)
    if dropped:
        tx.add_stored_bytes(job.job_id, -sum(row.size_bytes for row in dropped))
    batch = Batch(len(rows), tuple(row.sha256 for row in dropped))
    return batch, rows[-1].key if len(rows) == limit else ""
