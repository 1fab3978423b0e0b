"""What the ledger holds: frozen rows, and the values that change them.

Instants named `*_ns` are CLOCK_MONOTONIC of the coordinator and are re-based at its start.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from enum import StrEnum

from pydantic import JsonValue

from flashruntime.protocol.budget import Budget
from flashruntime.protocol.events import EventType
from flashruntime.protocol.failures import Decision
from flashruntime.protocol.jobs import JobSpec, JobState
from flashruntime.protocol.nodes import NodeDuty
from flashruntime.protocol.tasks import OutputFile, TaskPayload, TaskState


class LeaseState(StrEnum):
    """Life of a lease: LIVE and LAPSED are open, all others are final."""

    LIVE = "LIVE"
    LAPSED = "LAPSED"
    COMPLETED = "COMPLETED"
    FAILED = "FAILED"
    SUPERSEDED = "SUPERSEDED"
    CANCELLED = "CANCELLED"


@dataclass(frozen=True, slots=True)
class Submission:
    """A validated job with the payload of each of its tasks, in index order."""

    job_id: str
    spec: JobSpec
    payloads: Sequence[TaskPayload]
    lease_s: float
    idempotency_key: str | None
    request_digest: str


@dataclass(frozen=True, slots=True)
class TaskCounts:
    """How many tasks of a job are in each state."""

    pending: int = 0
    leased: int = 0
    completed: int = 0
    failed: int = 0
    cancelled: int = 0

    def moved(self, before: TaskState, after: TaskState) -> "TaskCounts":
        """Return the counts after one task went from `before` to `after`."""
        if before is after:
            return self
        left, entered = before.value.lower(), after.value.lower()
        return replace(self, **{left: getattr(self, left) - 1, entered: getattr(self, entered) + 1})

    def by_state(self) -> dict[str, int]:
        """Return the counts under the names of the states."""
        return {state.value: getattr(self, state.value.lower()) for state in TaskState}


@dataclass(frozen=True, slots=True)
class JobRow:
    """A job without its spec; `seq` orders jobs by submission, `need` is what its tasks ask for."""

    seq: int
    job_id: str
    name: str
    state: JobState
    reason: str | None
    created_at: datetime
    finished_at: datetime | None
    lease_ns: int
    max_errors: int
    output_prefix: str
    idempotency_key: str | None
    request_digest: str
    counts: TaskCounts
    need: str = ""

    def prefix_of(self, index: int, lease_id: str) -> str:
        """Return where a lease of the task `index` puts its outputs."""
        return f"{self.output_prefix}/{self.job_id}/{index:05d}/{lease_id}"


@dataclass(frozen=True, slots=True)
class TaskResult:
    """What the accepted attempt handed in."""

    outputs: tuple[OutputFile, ...]
    metrics_json: str | None
    resumed_from: int | None


@dataclass(frozen=True, slots=True)
class TaskRow:
    """A task: `lease_id` names its newest lease, `holder` the lease that may still act on it.

    `loss_run` counts attempts lost in a row without a step beyond `best_step`, `same_run` equal
    failures in a row. A task waits while `not_before_ns` (0: ready) is ahead; `avoid_node` failed
    it last. `failed_resume` is the step at which its last failed attempt began and ended,
    `high_step` the furthest of earlier attempts, `recomputed` the steps that were done again.
    """

    task_id: str
    job_id: str
    job_seq: int
    index: int
    state: TaskState = TaskState.PENDING
    lease_id: str | None = None
    holder: str | None = None
    attempts: int = 0
    errors: int = 0
    losses: int = 0
    loss_run: int = 0
    best_step: int = -1
    not_before_ns: int = 0
    backoff_ns: int = 0
    avoid_node: str | None = None
    last_failure: str | None = None
    reason: str | None = None
    result: TaskResult | None = None
    same_run: int = 0
    need: str = ""
    suspect_step: int | None = None
    failed_resume: int | None = None
    high_step: int = 0
    recomputed: int = 0

    @property
    def budget(self) -> Budget:
        """What the task may still spend."""
        return Budget(self.errors, self.loss_run, self.same_run, self.best_step, self.last_failure)

    @property
    def ready_order(self) -> tuple[int, int]:
        """Where it stands among tasks that are ready."""
        return self.job_seq, self.index

    @property
    def waiting_order(self) -> tuple[int, int, int]:
        """Where it stands among tasks that wait or have waited."""
        return self.not_before_ns, self.job_seq, self.index

    def left_with(self, budget: Budget) -> "TaskRow":
        """Return the task with this budget."""
        return replace(
            self,
            errors=budget.errors,
            loss_run=budget.loss_run,
            same_run=budget.same_run,
            best_step=budget.best_step,
            last_failure=budget.last_failure,
        )


@dataclass(frozen=True, slots=True)
class LeaseRow:
    """A lease; `refused` names the calls that its holder made in vain after it was fenced."""

    lease_id: str
    task_id: str
    job_id: str
    node_id: str
    session_id: str | None
    claim_id: str | None
    attempt_number: int
    state: LeaseState
    lease_ns: int
    deadline_ns: int
    output_prefix: str
    step: int | None = None
    metrics_json: str | None = None
    refused: tuple[str, ...] = ()
    decision: Decision | None = None
    resumed_from: int | None = None
    checkpoint_step: int | None = None

    @property
    def commit_key(self) -> str:
        """Key of this attempt's single output."""
        return f"{self.output_prefix}/output"


@dataclass(frozen=True, slots=True)
class EventDraft:
    """An event before it is stamped with the time."""

    type: EventType
    job_id: str | None
    task_id: str | None
    lease_id: str | None
    data: Mapping[str, JsonValue]


@dataclass(frozen=True, slots=True)
class EventRow:
    """A stamped event; the store assigns `event_id`."""

    event_id: int
    type: EventType
    job_id: str | None
    task_id: str | None
    lease_id: str | None
    at: datetime
    mono_ns: int
    boot_id: str
    data_json: str


@dataclass(frozen=True, slots=True)
class ObjectRow:
    """Where an object's bytes are, by digest; `accepted` ones belong to a result for ever."""

    key: str
    sha256: str
    size_bytes: int
    accepted: bool = False
    job_id: str | None = None
    task_id: str | None = None
    path: str | None = None


@dataclass(frozen=True, slots=True)
class NodeRow:
    """A registered worker, its newest session, and what it is to do."""

    node_id: str
    session_id: str
    hostname: str | None
    registered_at: datetime
    registration_json: str
    duty: NodeDuty = NodeDuty.ACTIVE


@dataclass(frozen=True, slots=True)
class ClaimQuery:
    """Which task a node may have: a waiting task is due once its `not_before_ns` <= `now_ns`.

    Only tasks with one of `needs` are given. With `others_live`, a task whose `avoid_node` is
    `node_id` is held back for `patience_ns` after it became due.
    """

    node_id: str
    now_ns: int
    job_seq: int | None
    others_live: bool
    patience_ns: int
    needs: tuple[str, ...] = ("",)
