"""What is done about each kind of failure: one versioned table, the same for every user of it.

A failure that counts spends one of the job's `maxTaskAttempts`; the others (preemptions, lost
nodes, the control plane's own faults) never do.
"""

import hashlib
from dataclasses import dataclass
from typing import Protocol

from flashruntime.protocol.failures import Decision, Evidence, FailureClass, RecoveryAction
from flashruntime.recovery.classify import classify

POLICY_VERSION = "2026.2"
_MAX_EXPONENT = 20


@dataclass(frozen=True, slots=True)
class Row:
    """One row of the policy; `repeat_is_final`: the same failure at the same step is not retried.

    The wait before a retry doubles with each counted error, from `base_s` up to `longest_s`.
    """

    action: RecoveryAction
    counts_as_error: bool
    base_s: float = 0.0
    longest_s: float = 0.0
    repeat_is_final: bool = False


_FAIL = Row(RecoveryAction.FAIL_JOB, counts_as_error=True)
_FREE_RETRY = Row(RecoveryAction.RETRY_TASK, counts_as_error=False)


def _retry(base_s: float, longest_s: float, *, final: bool = False) -> Row:
    return Row(RecoveryAction.RETRY_TASK, True, base_s, longest_s, final)


TABLE: dict[FailureClass, Row] = {
    FailureClass.APPLICATION_ERROR: _FAIL,
    FailureClass.DATA_ERROR: _FAIL,
    FailureClass.WORKER_CRASH: _retry(1.0, 30.0, final=True),
    FailureClass.NODE_LOSS: _FREE_RETRY,
    FailureClass.ACCELERATOR_FAILURE: Row(
        RecoveryAction.REPLACE_NODE, False, 5.0, 30.0, repeat_is_final=True
    ),
    FailureClass.COMMUNICATION_ERROR: _retry(2.0, 60.0),
    FailureClass.NETWORK_DEGRADATION: _retry(2.0, 60.0),
    FailureClass.STORAGE_TIMEOUT: _retry(2.0, 60.0),
    FailureClass.ARTIFACT_CORRUPTION: _retry(1.0, 30.0),
    FailureClass.PREEMPTION: _FREE_RETRY,
    FailureClass.CORRELATED_INCIDENT: Row(RecoveryAction.RETRY_TASK, False, 30.0, 300.0),
    FailureClass.CONTROL_PLANE_FAILURE: Row(RecoveryAction.RETRY_TASK, False, 1.0, 30.0),
    FailureClass.RESOURCE_EXHAUSTED: _retry(10.0, 300.0),
    FailureClass.UNKNOWN: _retry(1.0, 30.0, final=True),
}


class History(Protocol):
    """What the policy needs to know of a task beside the evidence."""

    @property
    def task_id(self) -> str:
        """The task, for the jitter."""
        ...

    @property
    def attempt_number(self) -> int:
        """The attempt that failed, for the jitter."""
        ...

    @property
    def errors(self) -> int:
        """Failures counted before this one."""
        ...

    @property
    def max_errors(self) -> int:
        """How many counted failures end the task."""
        ...

    @property
    def repeated(self) -> bool:
        """Whether the previous failure was the same at the same step."""
        ...


def decide_with_history(evidence: Evidence, history: History) -> Decision:
    """Return the decision about a failed attempt of a task."""
    key = f"{history.task_id}#{history.attempt_number}"
    return decide(evidence, history.errors, history.max_errors, history.repeated, jitter_key=key)


def decide(
    evidence: Evidence, errors: int, max_errors: int, repeated: bool, *, jitter_key: str = ""
) -> Decision:
    """Return what to do about a failure; equal arguments give equal decisions.

    `errors` were counted before this failure; `jitter_key` names the attempt, so that the waits
    of many tasks that fail together are spread.
    """
    failure_class, seen = classify(evidence)
    row = TABLE[failure_class]
    action, reason, exhausted = row.action, seen, False
    if action is not RecoveryAction.FAIL_JOB:
        if repeated and row.repeat_is_final:
            action = RecoveryAction.FAIL_JOB
            reason = f"the same failure at the same step twice, a retry would not help: {seen}"
        elif row.counts_as_error and errors + 1 >= max_errors:
            action, exhausted = RecoveryAction.FAIL_JOB, True
            reason = f"{errors + 1} failed attempts, maxTaskAttempts is {max_errors}; last: {seen}"
    retried = action is not RecoveryAction.FAIL_JOB
    return Decision(
        failure_class=failure_class,
        action=action,
        counts_as_error=row.counts_as_error,
        exhausted=exhausted,
        backoff_s=backoff_s(row, errors, jitter_key) if retried else 0.0,
        reason=reason,
        policy_version=POLICY_VERSION,
    )


def backoff_s(row: Row, errors: int, jitter_key: str) -> float:
    """Return the wait in seconds: doubled with each error, then spread over its upper half."""
    longest = min(row.longest_s, row.base_s * 2.0 ** min(errors, _MAX_EXPONENT))
    digest = hashlib.sha256(f"{jitter_key}|{errors}".encode("utf-8", "replace")).digest()
    return round(longest * (0.5 + int.from_bytes(digest[:4], "big") / 2**33), 3)
