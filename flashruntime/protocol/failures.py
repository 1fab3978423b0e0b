"""Failures: what was seen, what it is called, and what is done about it."""

from enum import StrEnum

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


class Evidence(OpenModel):
    """What the launcher or worker knows of the end of an attempt.

    `stopped` means that the worker itself ended the attempt (a preemption notice, a shutdown).
    `hung` means that the launcher ended it because it had shown no sign of progress.
    `error_type` and `message` come from the process's own error file, else stay None.
    """

    ended_by: EndedBy
    exit_code: int | None = None
    signal: int | None = None
    error_type: str | None = None
    message: str | None = None
    step: int | None = Field(default=None, ge=0, le=2**53)
    log_tail: str | None = None


class Decision(OpenModel):
    """What the policy decided, reproducible from the evidence and the policy's version.

    `exhausted` tells that the action is fail_job only because the budget of errors is spent.
    """

    failure_class: FailureClass
    action: RecoveryAction
    counts_as_error: bool
    exhausted: bool = False
    backoff_s: float = 0.0
    reason: str
    policy_version: str
