"""Jobs: taken in whole, read in pages, cancelled at once."""

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import islice
from operator import attrgetter
from typing import Generic, TypeVar

from pydantic import JsonValue

from flashruntime.errors import Conflict, InvalidInput
from flashruntime.leases import views
from flashruntime.leases.jsontext import clean, dump_model
from flashruntime.leases.ledger import Ledger, new_lease_id, newest_lease, of_job, wanted_job
from flashruntime.leases.placement import need_of
from flashruntime.leases.record import EventDraft, JobRow, Submission, TaskCounts, TaskRow
from flashruntime.leases.store import Transaction
from flashruntime.leases.transitions import NS_PER_S
from flashruntime.protocol.base import MAX_KEY_BYTES, check_key
from flashruntime.protocol.events import Event, EventPage, EventType
from flashruntime.protocol.jobs import JobPage, JobRecord, JobState
from flashruntime.protocol.tasks import TaskPage, TaskPayload, TaskRecord

MAX_PAGE = 10_000
# A row may hold megabytes of what users and workers sent; a page ends early where they add up.
MAX_PAGE_BYTES = 16 * 1024 * 1024
OUTPUT_BYTES = 2 * MAX_KEY_BYTES
STRIDE = 20
CHUNK = 1_000
Item = TypeVar("Item")
Row = TypeVar("Row")


class JobBook(Ledger):
    """Submits, reads and cancels jobs."""

    def submit(self, submission: Submission) -> tuple[JobRecord, bool]:
        """Record a job with all its tasks; False beside it if its key has brought it before.

        Conflict if the idempotency key came with another request, or the job id exists.
        """
        with self._store.transaction() as tx:
            first = _submitted_before(tx, submission)
            if first is not None:
                return self._job_record(tx, first), False
            return views.job_record(self._add_job(tx, submission), submission.spec), True

    def submitted(self, submission: Submission) -> JobRecord | None:
        """Return the job that this submission's key has brought before; Conflict as `submit`."""
        with self._store.transaction() as tx:
            first = _submitted_before(tx, submission)
            return None if first is None else self._job_record(tx, first)

    def _add_job(self, tx: Transaction, submission: Submission) -> JobRow:
        if not submission.payloads:
            raise InvalidInput(f"job {submission.job_id!r} has no task")
        if tx.job(submission.job_id) is not None:
            raise Conflict(f"job {submission.job_id!r} exists")
        spec = submission.spec
        job = JobRow(
            seq=0,
            job_id=submission.job_id,
            name=clean(spec.metadata.name),
            state=JobState.PENDING,
            reason=None,
            created_at=self._clock.utc_now(),
            finished_at=None,
            lease_ns=round(submission.lease_s * NS_PER_S),
            max_errors=spec.spec.retryPolicy.maxTaskAttempts,
            output_prefix=spec.spec.artifacts.outputPrefix,
            idempotency_key=_key(submission),
            request_digest=submission.request_digest,
            counts=TaskCounts(pending=len(submission.payloads)),
            need=need_of(spec.spec.workload.parameters),
        )
        _check_prefix(job)
        job = tx.add_job(job, dump_model(spec))
        tx.add_inputs(job.seq, (file.key for file in spec.spec.workload.parameters.inputs))
        self._needs.add(job.need)
        data: dict[str, JsonValue] = {"name": job.name, "tasks": len(submission.payloads)}
        self._append(tx, [of_job(EventType.JOB_ACCEPTED, job, data)])
        for chunk in _chunks(submission.payloads):
            self._add_tasks(tx, job, chunk)
        return job

    def _add_tasks(
        self, tx: Transaction, job: JobRow, payloads: Sequence[tuple[int, TaskPayload]]
    ) -> None:
        created = []
        for index, payload in payloads:
            task_id = f"{job.job_id}-{index:05d}"
            row = TaskRow(task_id, job.job_id, job.seq, index, need=job.need)
            created.append((row, dump_model(payload)))
        tx.add_tasks(created)
        kind = EventType.TASK_CREATED
        self._append(
            tx,
            [
                EventDraft(kind, job.job_id, row.task_id, None, {"index": row.index})
                for row, _ in created
            ],
        )

    def cancel_job(self, job_id: str) -> JobRecord:
        """End a job and fence all its leases; a job that has ended stays as it is. NotFound."""
        with self._store.transaction() as tx:
            job = wanted_job(tx, job_id)
            if not job.state.terminal:
                job = self._end_job(tx, job, EventType.JOB_CANCELLED, "cancelled on request")
            return self._job_record(tx, job)

    def job(self, job_id: str) -> JobRecord:
        """Return a job; NotFound."""
        with self._store.transaction() as tx:
            return self._job_record(tx, wanted_job(tx, job_id))

    def jobs(self, after: str | None, limit: int) -> JobPage:
        """Return a page of jobs without their specs, newest first, those older than `after`."""
        limit = _bounded(limit)
        with self._store.transaction() as tx:
            seq = None if after is None else wanted_job(tx, after).seq
            rows = tx.jobs_before(seq, limit + 1)
        items = [views.job_record(row) for row in rows[:limit]]
        return JobPage(items=items, next=items[-1].job_id if len(rows) > limit else None)

    def tasks(self, job_id: str, after: int | None, limit: int) -> TaskPage:
        """Return a page of a job's tasks in index order, those beyond the index `after`."""
        page: Page[TaskRecord] = Page(_bounded(limit))
        with self._store.transaction() as tx:
            job, at = wanted_job(tx, job_id), -1 if after is None else after
            for row in _in_strides(partial(tx.tasks_after, job.seq), attrgetter("index"), at):
                if page.is_full:
                    return TaskPage(items=page.items, next=page.items[-1].index)
                record, size_bytes = self._task_record(tx, row)
                page.add(record, size_bytes)
        return TaskPage(items=page.items)

    def _task_record(self, tx: Transaction, task: TaskRow) -> tuple[TaskRecord, int]:
        """Return a task, and the bytes of what is not of bounded size in it."""
        lease, payload_json = newest_lease(tx, task), tx.payload_json(task.task_id)
        record = views.task_record(task, lease, payload_json)
        texts = payload_json, task.reason, views.metrics_of(task, lease)
        size_bytes = sum(len(text) for text in texts if text)
        size_bytes += OUTPUT_BYTES * len(record.outputs)
        if record.step is None or task.holder is None or task.state.terminal:
            return record, size_bytes
        age_ns = self._steps.age_ns(task.holder, self._clock.monotonic_ns())
        return record.model_copy(update={"step_age_s": age_ns / NS_PER_S}), size_bytes

    def events(self, job_id: str | None, after: int, limit: int) -> EventPage:
        """Return a page of a job's events (None: of all), those with ids beyond `after`."""
        page: Page[Event] = Page(_bounded(limit))
        with self._store.transaction() as tx:
            if job_id is not None:
                wanted_job(tx, job_id)
            read = partial(tx.events_after, job_id)
            for row in _in_strides(read, attrgetter("event_id"), max(0, after)):
                if page.is_full:
                    break
                page.add(views.event_view(row), len(row.data_json))
        return EventPage(items=page.items, last_id=page.items[-1].id if page.items else after)


class Page(Generic[Item]):
    """A page while it grows, of bounded number and size but for its first item."""

    def __init__(self, limit: int) -> None:
        self.items: list[Item] = []
        self._limit = limit
        self._left_bytes = MAX_PAGE_BYTES

    @property
    def is_full(self) -> bool:
        """Whether nothing more belongs on this page."""
        return len(self.items) >= self._limit or self._left_bytes <= 0

    def add(self, item: Item, size_bytes: int) -> None:
        """Append an item."""
        self.items.append(item)
        self._left_bytes -= size_bytes


def _in_strides(
    read: Callable[[int, int], list[Row]], number: Callable[[Row], int], after: int
) -> Iterator[Row]:
    """Yield the rows beyond a number, a few in memory at once."""
    while rows := read(after, STRIDE):
        yield from rows
        after = number(rows[-1])


def _key(submission: Submission) -> str | None:
    return submission.idempotency_key and clean(submission.idempotency_key)


def _submitted_before(tx: Transaction, submission: Submission) -> JobRow | None:
    key = _key(submission)
    first = None if key is None else tx.job_by_key(key)
    if first is not None and first.request_digest != submission.request_digest:
        raise Conflict(
            f"idempotency key {key!r} came with another request before; use a new key for a new job"
        )
    return first


def _bounded(limit: int) -> int:
    if limit < 1:
        raise InvalidInput(f"limit must be at least 1, it is {limit}")
    return min(limit, MAX_PAGE)


def _check_prefix(job: JobRow) -> None:
    """Refuse an output prefix that leaves no room for the keys of a task."""
    try:
        check_key(f"{job.prefix_of(job.counts.pending, new_lease_id())}/output")
    except ValueError as error:
        raise InvalidInput(f"artifacts.outputPrefix is too long or unsafe: {error}") from error


def _chunks(
    payloads: Sequence[TaskPayload],
) -> Iterator[list[tuple[int, TaskPayload]]]:
    numbered = enumerate(payloads)
    while chunk := list(islice(numbered, CHUNK)):
        yield chunk
