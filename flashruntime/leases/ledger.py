"""What all parts of the manager share: store, clock, and how a change is written down."""

import secrets
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, TypeVar

from pydantic import JsonValue

from flashruntime.clock import Clock, boot_id
from flashruntime.errors import NotFound, Superseded
from flashruntime.leases import transitions, views
from flashruntime.leases.jsontext import clean, dumps
from flashruntime.leases.record import EventDraft, EventRow, JobRow, LeaseRow, TaskRow
from flashruntime.leases.steps import Steps
from flashruntime.leases.store import LeaseStore, Transaction
from flashruntime.leases.transitions import Change
from flashruntime.protocol.events import EventType
from flashruntime.protocol.jobs import JobRecord, JobSpec, JobState
from flashruntime.protocol.tasks import TaskState

F = TypeVar("F", bound=Callable[..., Any])
_ENDED = {
    EventType.JOB_SUCCEEDED: JobState.SUCCEEDED,
    EventType.JOB_FAILED: JobState.FAILED,
    EventType.JOB_CANCELLED: JobState.CANCELLED,
}
_VERBS = {"logs": "write logs", "artifact": "upload"}


def quick(call: F) -> F:
    """Mark a call that takes a fraction of a millisecond however much the ledger holds."""
    call.quick = True  # type: ignore[attr-defined]
    return call


class Ledger:
    """A store and a clock; used from one thread at a time."""

    def __init__(self, store: LeaseStore, clock: Clock) -> None:
        self._store = store
        self._clock = clock
        self._boot_id = boot_id()
        self._steps = Steps(clock.monotonic_ns())
        # The needs that tasks in the queue may have; one that none has any more is harmless.
        self._needs: set[str] = set()

    def _job_record(self, tx: Transaction, job: JobRow) -> JobRecord:
        return views.job_record(job, JobSpec.model_validate_json(tx.spec_json(job.job_id)))

    def _append(self, tx: Transaction, drafts: Sequence[EventDraft]) -> None:
        """Stamp events with this instant and append them."""
        if not drafts:
            return
        at, mono_ns = self._clock.utc_now(), self._clock.monotonic_ns()
        tx.append(
            [
                EventRow(
                    0,
                    draft.type,
                    draft.job_id,
                    draft.task_id,
                    draft.lease_id,
                    at,
                    mono_ns,
                    self._boot_id,
                    dumps(dict(draft.data), "event data"),
                )
                for draft in drafts
            ]
        )

    def _refuse(self, tx: Transaction, task: TaskRow, lease: LeaseRow, call: str) -> Superseded:
        """Record a fenced holder's call and return the error to raise after the transaction."""
        refused, events = transitions.refuse(lease, call)
        if events:
            tx.put_lease(refused)
            self._append(tx, events)
        return Superseded(
            f"lease {lease.lease_id} (attempt {lease.attempt_number}) may not "
            f"{_VERBS.get(call, call)}: it is {lease.state.value}, "
            f"task {task.task_id} is {task.state.value} under attempt {task.attempts}; "
            "stop this attempt"
        )

    def _apply(self, tx: Transaction, before: TaskRow, change: Change) -> None:
        """Write a change and what follows from it for the job."""
        for lease in (change.fenced, change.lease):
            if lease is not None:
                tx.put_lease(lease)
        self._append(tx, change.events)
        if change.task is before:
            return
        tx.put_task(change.task)
        if change.task.state is before.state:
            return
        if change.task.state is TaskState.PENDING:
            self._needs.add(change.task.need)
        job = wanted_job(tx, before.job_id)
        state = JobState.RUNNING if job.state is JobState.PENDING else job.state
        job = replace(job, state=state, counts=job.counts.moved(before.state, change.task.state))
        tx.put_job(job)
        ended = transitions.ended_job(job)
        if ended is not None:
            reason = f"task {before.task_id}: {change.task.reason}"
            self._end_job(tx, job, ended, reason if ended is EventType.JOB_FAILED else None)

    def _end_job(
        self, tx: Transaction, job: JobRow, ended: EventType, reason: str | None
    ) -> JobRow:
        """Close a job; tasks still open are cancelled and their leases fenced."""
        open_tasks = tx.cancel_open(job.seq) if job.counts.pending + job.counts.leased else 0
        counts = replace(
            job.counts, pending=0, leased=0, cancelled=job.counts.cancelled + open_tasks
        )
        now = self._clock.utc_now()
        job = replace(job, state=_ENDED[ended], reason=reason, finished_at=now, counts=counts)
        tx.put_job(job)
        data: dict[str, JsonValue] = {"reason": reason, "cancelled_tasks": open_tasks}
        self._append(tx, [of_job(ended, job, data)])
        return job


def wanted_job(tx: Transaction, job_id: str) -> JobRow:
    """Return a job; NotFound."""
    job = tx.job(clean(job_id))
    if job is None:
        raise NotFound(f"no job {clean(job_id)!r}")
    return job


def attempt(tx: Transaction, lease_id: str) -> tuple[TaskRow, LeaseRow]:
    """Return a lease and its task; NotFound."""
    lease = tx.lease(clean(lease_id))
    if lease is None:
        raise NotFound(f"no lease {clean(lease_id)!r} on this ledger")
    task = tx.task(lease.task_id)
    if task is None:
        raise NotFound(f"lease {lease_id!r} names a task that does not exist")
    return task, lease


def newest_lease(tx: Transaction, task: TaskRow) -> LeaseRow | None:
    """Return the newest lease of a task, None before its first claim."""
    return None if task.lease_id is None else tx.lease(task.lease_id)


def new_lease_id() -> str:
    """Return an id that no other lease has."""
    return f"lease-{secrets.token_hex(16)}"


def of_job(kind: EventType, job: JobRow, data: dict[str, JsonValue]) -> EventDraft:
    """Return an event about a job as a whole."""
    return EventDraft(kind, job.job_id, None, None, data)
