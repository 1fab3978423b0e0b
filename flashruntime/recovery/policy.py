"""What is done about each kind of failure: one versioned table, the same for every user of it.

A failure that counts spends one of the job's `maxTaskAttempts`; the others (preemptions, lost
nodes, the control plane's own faults) never do, they have a budget of their own.
"""

import hashlib
from dataclasses import dataclass

from flashruntime.protocol.budget import MAX_LOSS_RUN
from flashruntime.protocol.failures import (
    Decision,
    Evidence,
    FailureClass,
    History,
    RecoveryAction,
)
from flashruntime.recovery.classify import classify
from flashruntime.recovery.hint import with_last_words

POLICY_VERSION = "2026.3"
_MAX_EXPONENT = 20


@dataclass(frozen=True, slots=True)
class Row:
    """One row of the policy; `repeat_is_final`: the same failure at the same step is not retried.

    The wait before a retry doubles with each failure, from `base_s` up to `longest_s`.
    `when_spent` is the action once the budget of errors is gone.
    """

    action: RecoveryAction
    counts_as_error: bool
    base_s: float = 0.0
    longest_s: float = 0.0
    repeat_is_final: bool = False
    first_is_free: bool = False
    when_spent: RecoveryAction = RecoveryAction.FAIL_JOB


_FAIL = Row(RecoveryAction.FAIL_JOB, counts_as_error=True)
_FREE_RETRY = Row(RecoveryAction.RETRY_TASK, False, 0.25, 30.0, first_is_free=True)


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
    FailureClass.NETWORK_DEGRADATION: Row(RecoveryAction.RETRY_TASK, False, 2.0, 60.0),
    FailureClass.STORAGE_TIMEOUT: Row(
        RecoveryAction.RETRY_TASK, True, 2.0, 60.0, when_spent=RecoveryAction.PAUSE_JOB
    ),
    FailureClass.ARTIFACT_CORRUPTION: _retry(1.0, 30.0),
    FailureClass.PREEMPTION: _FREE_RETRY,
    FailureClass.CORRELATED_INCIDENT: Row(RecoveryAction.FREEZE_AUTOMATION, True),
    FailureClass.CONTROL_PLANE_FAILURE: Row(RecoveryAction.RETRY_TASK, False, 1.0, 30.0),
    FailureClass.RESOURCE_EXHAUSTED: _retry(10.0, 300.0),
    FailureClass.UNKNOWN: _retry(1.0, 30.0, final=True),
}


def decide(evidence: Evidence, history: History) -> Decision:
    """Return what to do about a failure; equal arguments give equal decisions."""
    kind, seen = classify(evidence)
    row = TABLE[kind]
    found = _Choice(row.action, seen)
    if row.action is not RecoveryAction.FAIL_JOB:
        found = _within_budget(row, seen, history) or _try_again(row, evidence, seen, history)
    failure_class = kind
    if found.action is RecoveryAction.FREEZE_AUTOMATION:
        failure_class = FailureClass.CORRELATED_INCIDENT
    return Decision(
        failure_class=failure_class,
        action=found.action,
        counts_as_error=row.counts_as_error,
        exhausted=found.exhausted,
        backoff_s=found.backoff_s,
        reason=with_last_words(kind, found.reason, evidence),
        policy_version=POLICY_VERSION,
        history=history,
    )


@dataclass(frozen=True, slots=True)
class _Choice:
    action: RecoveryAction
    reason: str
    exhausted: bool = False
    backoff_s: float = 0.0


def _within_budget(row: Row, seen: str, history: History) -> _Choice | None:
    """Return the end of the task where nothing is left to try, None while something is."""
    failed = history.errors + 1
    if history.repeated and row.repeat_is_final and history.suspect_step is None:
        words = f"the same failure again without progress, a retry would not help: {seen}"
        return _Choice(RecoveryAction.FAIL_JOB, words)
    if not history.may_retry:
        return _Choice(RecoveryAction.FAIL_JOB, seen, exhausted=True)
    if row.counts_as_error and failed >= history.max_errors:
        most = history.max_errors - (history.limit == "max_restarts")
        words = f"{failed} failed attempts, {history.limit} is {most}; last: {seen}"
        if row.when_spent is RecoveryAction.PAUSE_JOB:
            words = f"paused: {words}"
        return _Choice(row.when_spent, words, exhausted=True)
    if not row.counts_as_error and history.loss_run + 1 >= MAX_LOSS_RUN:
        words = f"{MAX_LOSS_RUN} attempts in a row were lost without progress; last: {seen}"
        return _Choice(RecoveryAction.FAIL_JOB, words, exhausted=True)
    return None


def _try_again(row: Row, evidence: Evidence, seen: str, history: History) -> _Choice:
    wait_s = backoff_s(row, history)
    incident = history.incident
    if incident is not None:
        frozen = TABLE[FailureClass.CORRELATED_INCIDENT]
        words = f"{incident.words()}; last: {seen}"
        return _Choice(frozen.action, words, backoff_s=max(wait_s, incident.frozen_s))
    if history.repeated and row.repeat_is_final:
        step = history.suspect_step
        seen = f"twice right after the resume from step {step}, which is set aside: {seen}"
    action = row.action
    if action is RecoveryAction.RETRY_TASK and evidence.ranks > 1:
        action = RecoveryAction.RESTART_GROUP
    return _Choice(action, seen, backoff_s=wait_s)


def backoff_s(row: Row, history: History) -> float:
    """Return the wait in seconds: doubled with each failure, then spread over its upper half.

    A lost attempt is followed at once by the next; from the second in a row on, they wait too.
    """
    before = history.errors if row.counts_as_error else history.loss_run
    if row.first_is_free and before == 0:
        return 0.0
    longest = min(row.longest_s, row.base_s * 2.0 ** min(before, _MAX_EXPONENT))
    digest = hashlib.sha256(f"{history.attempt}|{before}".encode("utf-8", "replace")).digest()
    return round(longest * (0.5 + int.from_bytes(digest[:4], "big") / 2**33), 3)
