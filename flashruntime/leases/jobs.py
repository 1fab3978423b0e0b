"""Jobs: taken in whole, read in pages, cancelled at once."""

from collections.abc import Iterator, Sequence
from itertools import islice

from pydantic import JsonValue

from flashruntime.errors import Conflict, InvalidInput
from flashruntime.leases import views
from flashruntime.leases.jsontext import clean, dump_model
from flashruntime.leases.ledger import Ledger, new_lease_id, newest_lease, of_job, wanted_job
from flashruntime.leases.placement import need_of
from flashruntime.leases.record import EventDraft, JobRow, Submission, TaskCounts, TaskRow
from flashruntime.leases.store import Transaction
from flashruntime.leases.transitions import NS_PER_S
from flashruntime.protocol.base import check_key
from flashruntime.protocol.events import EventPage, EventType
from flashruntime.protocol.jobs import JobPage, JobRecord, JobState
from flashruntime.protocol.tasks import TaskPage, TaskPayload, TaskRecord

MAX_PAGE = 10_000
CHUNK = 1_000


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
        limit = _bounded(limit)
        with self._store.transaction() as tx:
            job = wanted_job(tx, job_id)
            rows = tx.tasks_after(job.seq, -1 if after is None else after, limit + 1)
            items = [self._task_record(tx, row) for row in rows[:limit]]
        return TaskPage(items=items, next=items[-1].index if len(rows) > limit else None)

    def _task_record(self, tx: Transaction, task: TaskRow) -> TaskRecord:
        record = views.task_record(task, newest_lease(tx, task), tx.payload_json(task.task_id))
        if record.step is None or task.holder is None or task.state.terminal:
            return record
        age_ns = self._steps.age_ns(task.holder, self._clock.monotonic_ns())
        return record.model_copy(update={"step_age_s": age_ns / NS_PER_S})

    def events(self, job_id: str | None, after: int, limit: int) -> EventPage:
        """Return a page of a job's events (None: of all), those with ids beyond `after`."""
        with self._store.transaction() as tx:
            if job_id is not None:
                wanted_job(tx, job_id)
            rows = tx.events_after(job_id, max(0, after), _bounded(limit))
        items = [views.event_view(row) for row in rows]
        return EventPage(items=items, last_id=items[-1].id if items else after)


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
