"""Failures: what was seen, what it is called, and what is done about it."""

from enum import StrEnum
from typing import Annotated

from pydantic import Field

from flashruntime.protocol.base import OpenModel


class FailureClass(StrEnum):
    """What kind of failure an attempt ended with."""

    APPLICATION_ERROR = "application_error"
    DATA_ERROR = "data_error"
    WORKER_CRASH = "worker_crash"
    NODE_LOSS = "node_loss"
    ACCELERATOR_FAILURE = "accelerator_failure"
    COMMUNICATION_ERROR = "communication_error"
    NETWORK_DEGRADATION = "network_degradation"
    STORAGE_TIMEOUT = "storage_timeout"
    ARTIFACT_CORRUPTION = "artifact_corruption"
    PREEMPTION = "preemption"
    CORRELATED_INCIDENT = "correlated_incident"
    CONTROL_PLANE_FAILURE = "control_plane_failure"
    RESOURCE_EXHAUSTED = "resource_exhausted"
    UNKNOWN = "unknown"


class RecoveryAction(StrEnum):
    """What is done about a failure."""

    FAIL_JOB = "fail_job"
    RETRY_TASK = "retry_task"
    RESTART_GROUP = "restart_group"
    REPLACE_NODE = "replace_node"
    PAUSE_JOB = "pause_job"
    FREEZE_AUTOMATION = "freeze_automation"


class EndedBy(StrEnum):
    """How an attempt ended, as its launcher saw it: the strongest evidence there is."""

    EXIT = "exit"
    SIGNAL = "signal"
    SPAWN_ERROR = "spawn_error"
    STOPPED = "stopped"
    MISSING_OUTPUTS = "missing_outputs"
    BAD_INPUTS = "bad_inputs"
    WORKER_ERROR = "worker_error"
    LEASE_LOST = "lease_lost"
    HUNG = "hung"


Errno = Annotated[int, Field(ge=-(2**31), lt=2**31)]


class ReportedError(OpenModel):
    """An exception as the process that it ended told it; `bases` are its classes, nearest first.

    In a chain, `explicit` tells that what came next was raised `from` this one. `at_ns` is
    CLOCK_MONOTONIC of that process's host.
    """

    type_name: Annotated[str, Field(max_length=1_000)]
    message: Annotated[str, Field(max_length=20_000)] = ""
    bases: Annotated[list[str], Field(max_length=64)] = []
    errno: Errno | None = None
    explicit: bool = False
    rank: int | None = Field(default=None, ge=0, le=10**6)
    at_ns: int = Field(default=0, ge=0, le=2**63 - 1)


class Evidence(OpenModel):
    """What the launcher or worker knows of the end of an attempt.

    `stopped` means that the worker itself ended the attempt (a preemption notice, a shutdown).
    `hung` means that the launcher ended it because it had shown no sign of progress.
    `error_type`, `message` and the five fields after them come from error files that the
    processes wrote, else stay empty; `led_to_by` is the chain before the error, oldest first,
    `members` are those in an exception group, `other_errors` those of further processes, in the
    order of time. `oom_kills` counts the
    processes that the kernel killed for memory in the launcher's control group meanwhile.
    """

    ended_by: EndedBy
    exit_code: int | None = None
    signal: int | None = None
    error_type: str | None = None
    message: str | None = None
    error_bases: Annotated[list[str], Field(max_length=64)] = []
    errno: Errno | None = None
    led_to_by: Annotated[list[ReportedError], Field(max_length=16)] = []
    members: Annotated[list[ReportedError], Field(max_length=64)] = []
    other_errors: Annotated[list[ReportedError], Field(max_length=64)] = []
    oom_kills: int | None = Field(default=None, ge=0)
    ranks: int = Field(default=1, ge=1)
    step: int | None = Field(default=None, ge=0, le=2**53)
    checkpoint_step: int | None = Field(default=None, ge=0, le=2**53)
    resumed_from: int | None = Field(default=None, ge=0, le=2**53)
    log_tail: str | None = None


class Incident(OpenModel):
    """The same kind of failure at many places within a short time.

    `frozen_s` is how long from now nothing of that kind is tried again; `began` marks the failure
    with which this time has begun.
    """

    failure_class: FailureClass
    tasks: int
    nodes: int
    window_s: float
    frozen_s: float
    began: bool = False

    def words(self) -> str:
        """Say what was seen and what follows."""
        return (
            f"{self.failure_class.value} of {self.tasks} tasks on {self.nodes} nodes within "
            f"{self.window_s:g} s, nothing of it is tried again for {self.frozen_s:.1f} s"
        )


class History(OpenModel):
    """What a decision depends on beside the evidence.

    `attempt` names the attempt, for the jitter. `errors` were counted and `loss_run` attempts lost
    in a row before this failure; `repeated` tells that it is the previous one again, with
    `suspect_step` that both came right after the resume from the checkpoint of that step. `limit`
    is the budget's name as its user knows it. Without `may_retry`, any failure is the last.
    """

    attempt: str = ""
    errors: int = 0
    max_errors: int = 1
    loss_run: int = 0
    repeated: bool = False
    suspect_step: int | None = None
    limit: str = "maxTaskAttempts"
    may_retry: bool = True
    incident: Incident | None = None

    @property
    def freeze(self) -> Incident | None:
        """The incident with which a freeze begins, if one does."""
        begins = self.may_retry and self.incident is not None and self.incident.began
        return self.incident if begins else None


class Decision(OpenModel):
    """What the policy decided, reproducible from evidence, history and the policy's version.

    `exhausted` tells that nothing is tried again only because a budget is spent.
    """

    failure_class: FailureClass
    action: RecoveryAction
    counts_as_error: bool
    exhausted: bool = False
    backoff_s: float = 0.0
    reason: str
    policy_version: str
    history: History | None = None

    @property
    def retries(self) -> bool:
        """Whether the task is tried again."""
        return self.action not in {RecoveryAction.FAIL_JOB, RecoveryAction.PAUSE_JOB}
