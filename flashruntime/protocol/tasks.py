"""Tasks, leases and attempts on the wire."""

from datetime import datetime
from enum import StrEnum
from typing import Annotated

from pydantic import Field, JsonValue

from flashruntime.protocol.base import NodeId, ObjectKey, OpenModel, Sha256, WireModel
from flashruntime.protocol.failures import Decision, Evidence
from flashruntime.protocol.jobs import Checkpoints, InputFile, Outputs, Params
from flashruntime.protocol.placement import Imports, Resources

Metrics = dict[str, JsonValue]


class TaskState(StrEnum):
    """Life of a task."""

    PENDING = "PENDING"
    LEASED = "LEASED"
    COMPLETED = "COMPLETED"
    FAILED = "FAILED"
    CANCELLED = "CANCELLED"

    @property
    def terminal(self) -> bool:
        """Whether the task has ended."""
        return self in {TaskState.COMPLETED, TaskState.FAILED, TaskState.CANCELLED}


class TaskPayload(OpenModel):
    """What the worker runs: placeholders of the parameters already replaced."""

    type: str
    command: list[str] | None = None
    env: dict[str, str] = {}
    inputs: list[InputFile] = []
    outputs: Outputs = Outputs()
    checkpoint: Checkpoints = Checkpoints()
    params: Params = {}
    no_progress_s: float | None = None
    resources: Resources | None = None


class ClaimRequest(OpenModel):
    """Ask for work; repeating a `claim_id` gives the lease that it was given while that lives.

    `free` is what the node has left beside its running tasks; without it, all that it declared.
    """

    node_id: NodeId
    job_id: str | None = None
    session_id: str | None = None
    wait_s: float = Field(default=0.0, ge=0, le=60)
    claim_id: Annotated[str, Field(min_length=1, max_length=128)] | None = None
    free: Resources | None = None


class Lease(OpenModel):
    """A time-limited right to run an attempt.

    `commit_key` belongs to this lease alone: its single output goes there, further outputs beside
    it under `output_prefix`. `deadline` is for people; the holder counts `lease_seconds` itself.
    The checkpoint of `suspect_step` is not to be resumed from.
    """

    lease_id: str
    task_id: str
    job_id: str
    task_index: int
    node_id: str
    attempt_number: int
    lease_seconds: float
    deadline: datetime
    commit_key: ObjectKey
    output_prefix: ObjectKey
    payload: TaskPayload
    suspect_step: int | None = None


class HeartbeatRequest(OpenModel):
    """Sign of life of an attempt, with the steps that it has reached, began at and saved last.

    Once, with what its script imports (`module:name,name` each).
    """

    step: int | None = Field(default=None, ge=0, le=2**53)
    metrics: Metrics | None = None
    imports: Imports | None = None
    resumed_from: int | None = Field(default=None, ge=0, le=2**53)
    checkpoint_step: int | None = Field(default=None, ge=0, le=2**53)


class LeaseStatus(OpenModel):
    """Answer to a heartbeat: the renewed lease."""

    lease_id: str
    task_id: str
    attempt_number: int
    lease_seconds: float
    deadline: datetime


class OutputFile(WireModel):
    """An uploaded output: `path` as in the attempt's directory, `key` as in the artifact store."""

    path: ObjectKey
    key: ObjectKey
    sha256: Sha256


class LogSize(OpenModel):
    """How many bytes of an attempt's output the coordinator has; the next offset to send."""

    size: int


class CompleteRequest(OpenModel):
    """The attempt succeeded: either the digest of the object at `commit_key`, or every output."""

    output_sha256: Sha256 | None = None
    outputs: list[OutputFile] | None = None
    metrics: Metrics | None = None
    step: int | None = Field(default=None, ge=0, le=2**53)
    resumed_from: int | None = Field(default=None, ge=0, le=2**53)


class CompleteAnswer(OpenModel):
    """Whether this attempt's result is the task's result."""

    accepted: bool
    detail: str


class FailRequest(OpenModel):
    """The attempt failed."""

    reason: Annotated[str, Field(max_length=65_536)]
    evidence: Evidence | None = None


class FailAnswer(OpenModel):
    """What the policy decided."""

    decision: Decision
    task_state: TaskState


class TaskRecord(OpenModel):
    """A task as the coordinator sees it; lease fields speak of the newest lease.

    `step_age_s` is the time since its step last moved, as far as this coordinator has heard.
    """

    task_id: str
    job_id: str
    index: int
    state: TaskState
    params: Params = {}
    attempts: int = 0
    errors: int = 0
    losses: int = 0
    lease_id: str | None = None
    node_id: str | None = None
    step: int | None = None
    step_age_s: float | None = None
    reason: str | None = None
    metrics: Metrics | None = None
    resumed_from: int | None = None
    outputs: list[OutputFile] = []


class TaskPage(OpenModel):
    """A page of tasks in index order; pass `next` as `after` for the page that follows."""

    items: list[TaskRecord]
    next: int | None = None


class ArtifactRecord(OpenModel):
    """A stored object; `accepted` objects are immutable.

    `damaged` says why its bytes cannot be had until they are uploaded again.
    """

    uri: str
    object_key: str
    sha256: str
    size_bytes: int
    task_id: str | None = None
    path: str | None = None
    accepted: bool = False
    damaged: str | None = None


class ArtifactPage(OpenModel):
    """Artifacts that the results of a job refer to."""

    items: list[ArtifactRecord]
