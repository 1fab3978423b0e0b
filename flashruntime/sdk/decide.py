"""What follows a failed attempt of a local run: the shared policy, within the run's own budget."""

from flashruntime.leases.fingerprint import fingerprint
from flashruntime.protocol.events import EventType
from flashruntime.protocol.failures import Decision, Evidence, RecoveryAction
from flashruntime.recovery import classify, decide
from flashruntime.recovery.budget import MAX_LOSS_RUN, Budget
from flashruntime.sdk.record import Record


def failure_mark(evidence: Evidence) -> str | None:
    """Return what two occurrences of the same failure share, None where that is unknown."""
    return fingerprint(evidence, -1 if evidence.step is None else evidence.step)


def decide_task(evidence: Evidence, budget: Budget, max_restarts: int, key: str) -> Decision:
    """Return the policy's decision; without restarts even a lost attempt is the last one."""
    repeated = budget.repeated(failure_mark(evidence), at_known_step=evidence.step is not None)
    decision = decide(evidence, budget.errors, max_restarts + 1, repeated, jitter_key=key)
    seen = classify(evidence)[1]
    lost = not decision.counts_as_error
    if decision.action is RecoveryAction.FAIL_JOB and not decision.exhausted:
        return decision
    if max_restarts == 0:
        reason = seen
    elif decision.exhausted:
        failed = budget.errors + 1
        reason = f"{failed} failed attempts, max_restarts is {max_restarts}; last: {seen}"
    elif lost and budget.loss_run + 1 >= MAX_LOSS_RUN:
        reason = f"{MAX_LOSS_RUN} attempts in a row were lost without progress; last: {seen}"
    else:
        return decision
    ended = {"action": RecoveryAction.FAIL_JOB, "exhausted": True, "backoff_s": 0.0}
    return decision.model_copy(update={**ended, "reason": reason})


def tell(
    record: Record, task: int, attempt_id: str, evidence: Evidence, decision: Decision
) -> None:
    """Record what was seen, what it is called, and what is done about it."""
    seen = evidence.model_dump(mode="json", exclude_none=True)
    tail = seen.pop("log_tail", None)
    about = {"failure_class": decision.failure_class.value, "reason": decision.reason}
    about |= {"policy_version": decision.policy_version}
    action = {"action": decision.action.value, "backoff_s": decision.backoff_s}
    action |= {"counts_as_error": decision.counts_as_error}
    failed = {"reason": decision.reason, "evidence": seen, "log_tail": tail}
    record.event(EventType.TASK_ATTEMPT_FAILED, task, attempt_id, failed)
    record.event(EventType.FAILURE_CLASSIFIED, task, attempt_id, {**about, "evidence": seen})
    chosen = {**about, **action, "evidence": seen}
    record.event(EventType.RECOVERY_ACTION_SELECTED, task, attempt_id, chosen)
