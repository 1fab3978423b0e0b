"""What follows a failed attempt of a local run: the shared policy, within the run's own budget."""

from flashruntime.protocol.budget import Budget, fingerprint
from flashruntime.protocol.events import EventType
from flashruntime.protocol.failures import Decision, Evidence, History, RecoveryAction
from flashruntime.sdk.record import Record

_CARRIED_OUT = {
    RecoveryAction.FAIL_JOB: "the task ends",
    RecoveryAction.RETRY_TASK: "the task is launched again",
    RecoveryAction.RESTART_GROUP: "all ranks have been ended and are launched again together",
    RecoveryAction.REPLACE_NODE: "a local run has one node: the task is launched again on it",
    RecoveryAction.PAUSE_JOB: "the run ends with its state kept: submit again into the same "
    "output_dir to go on from the checkpoints",
    RecoveryAction.FREEZE_AUTOMATION: "the task is launched again when the freeze is over",
}


def failure_mark(evidence: Evidence) -> str | None:
    """Return what two occurrences of the same failure share, None where that is unknown."""
    return fingerprint(evidence, evidence.step)


def history_of(
    evidence: Evidence,
    budget: Budget,
    max_restarts: int,
    attempt: str,
    suspect_step: int | None = None,
) -> History:
    """Return what the policy needs to know; without restarts even a lost attempt is the last."""
    repeated = budget.repeats(failure_mark(evidence))
    return History(
        attempt=attempt,
        errors=budget.errors,
        max_errors=max_restarts + 1,
        loss_run=budget.loss_run,
        repeated=repeated,
        suspect_step=suspect_step if repeated else None,
        limit="max_restarts",
        may_retry=max_restarts > 0,
    )


def tell(
    record: Record, task: int, attempt_id: str, evidence: Evidence, decision: Decision
) -> None:
    """Record what was seen, what it is called, and what is done about it."""
    seen = evidence.model_dump(mode="json", exclude_defaults=True)
    tail = seen.pop("log_tail", None)
    failed = {"reason": decision.reason, "evidence": seen, "log_tail": tail}
    record.event(EventType.TASK_ATTEMPT_FAILED, task, attempt_id, failed)
    chosen = {**decision.model_dump(mode="json"), "evidence": seen}
    named = ("failure_class", "reason", "policy_version", "evidence")
    classified = {name: chosen[name] for name in named}
    record.event(EventType.FAILURE_CLASSIFIED, task, attempt_id, classified)
    chosen["carried_out"] = _CARRIED_OUT[decision.action]
    record.event(EventType.RECOVERY_ACTION_SELECTED, task, attempt_id, chosen)
    incident = None if decision.history is None else decision.history.freeze
    if incident is not None:
        frozen = {**incident.model_dump(mode="json"), "reason": incident.words()}
        record.event(EventType.RECOVERY_FROZEN, task, attempt_id, frozen)
