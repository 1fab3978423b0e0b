"""The lease state machine: pure functions from records and an instant to records and events.

`holds` is the only place that decides whether a lease may still act on its task.
"""

from dataclasses import dataclass, replace

from pydantic import JsonValue

from flashruntime.leases.record import (
    EventDraft,
    JobRow,
    LeaseRow,
    LeaseState,
    TaskResult,
    TaskRow,
)
from flashruntime.protocol.budget import MAX_LOSS_RUN, Budget
from flashruntime.protocol.events import EventType
from flashruntime.protocol.failures import Decision, Evidence, RecoveryAction
from flashruntime.protocol.tasks import TaskState

MAX_LOG_TAIL = 16_384
MAX_MESSAGE = 20_000
MAX_TYPE_NAME = 1_000
NS_PER_S = 1_000_000_000
Data = dict[str, JsonValue]


@dataclass(frozen=True, slots=True)
class Change:
    """Records to write and events to append; a record that is None stays as it is."""

    task: TaskRow
    lease: LeaseRow | None = None
    fenced: LeaseRow | None = None
    events: tuple[EventDraft, ...] = ()


def holds(task: TaskRow, lease_id: str) -> bool:
    """Return whether a lease may still act on its task: nobody claimed after it, nothing ended."""
    return task.holder == lease_id


def event(kind: EventType, lease: LeaseRow, data: Data | None = None) -> EventDraft:
    """Return an event about an attempt, with what a judge needs to place it."""
    named: Data = {"node_id": lease.node_id, "attempt_number": lease.attempt_number}
    return EventDraft(kind, lease.job_id, lease.task_id, lease.lease_id, named | (data or {}))


def _lose(task: TaskRow, lease: LeaseRow) -> TaskRow:
    """Count an attempt that was lost without the job's fault; progress starts a new run."""
    return replace(task.left_with(task.budget.lose(lease.step)), losses=task.losses + 1)


def claim(task: TaskRow, previous: LeaseRow | None, granted: LeaseRow) -> Change:
    """Give a PENDING task to `granted`; a lapsed previous lease is fenced for ever."""
    fenced = None
    data: Data = {"lease_s": granted.lease_ns / NS_PER_S}
    if previous is not None and previous.state is LeaseState.LAPSED:
        fenced = replace(previous, state=LeaseState.SUPERSEDED)
        task = _lose(task, previous)
        data |= {"supersedes": previous.lease_id}
    task = replace(
        task,
        state=TaskState.LEASED,
        lease_id=granted.lease_id,
        holder=granted.lease_id,
        attempts=granted.attempt_number,
        not_before_ns=0,
        backoff_ns=0,
        avoid_node=None,
    )
    return Change(task, granted, fenced, (event(EventType.LEASE_CLAIMED, granted, data),))


def lost_too_often(task: TaskRow, previous: LeaseRow | None) -> bool:
    """Return whether another claim would exceed the attempts lost in a row without progress."""
    lost = task
    if previous is not None and previous.state is LeaseState.LAPSED:
        lost = _lose(task, previous)
    return lost.loss_run >= MAX_LOSS_RUN


def give_up(task: TaskRow, previous: LeaseRow | None) -> Change:
    """Fail a task whose attempts were lost too often in a row."""
    reason = f"{MAX_LOSS_RUN} attempts in a row were lost without progress"
    fenced = None
    if previous is not None and previous.state is LeaseState.LAPSED:
        fenced = replace(previous, state=LeaseState.SUPERSEDED)
        task = _lose(task, previous)
    task = replace(task, state=TaskState.FAILED, holder=None, reason=reason)
    data: Data = {"losses": task.losses, "errors": task.errors, "reason": reason}
    draft = EventDraft(EventType.TASK_EXHAUSTED, task.job_id, task.task_id, task.lease_id, data)
    return Change(task, None, fenced, (draft,))


def lapse(task: TaskRow, lease: LeaseRow, reason: str) -> Change:
    """Make the task of a LIVE lease claimable; until somebody claims, the lease still holds."""
    events = (
        event(EventType.LEASE_EXPIRED, lease, {"reason": reason}),
        event(EventType.TASK_REQUEUED, lease, {"reason": reason, "backoff_s": 0.0}),
    )
    lapsed = replace(lease, state=LeaseState.LAPSED)
    return Change(replace(task, state=TaskState.PENDING), lapsed, None, events)


def renew(
    task: TaskRow, lease: LeaseRow, now_ns: int, step: int | None, metrics_json: str | None
) -> Change:
    """Give a holding lease its full time again, also when it lapsed and nobody claimed since."""
    if lease.state is LeaseState.COMPLETED:
        return Change(task)
    renewed = replace(
        reached(lease, step),
        state=LeaseState.LIVE,
        deadline_ns=now_ns + lease.lease_ns,
        metrics_json=metrics_json or lease.metrics_json,
    )
    if lease.state is LeaseState.LIVE:
        return Change(task, renewed)
    task = replace(task, state=TaskState.LEASED, holder=lease.lease_id)
    return Change(task, renewed, None, (event(EventType.LEASE_RENEWED, lease, {"revived": True}),))


def reached(lease: LeaseRow, step: int | None) -> LeaseRow:
    """Return a lease with the last step that its holder states, where it states one."""
    return lease if step is None else replace(lease, step=step)


def complete(task: TaskRow, lease: LeaseRow, result: TaskResult) -> Change:
    """Make a holding lease's result the task's result."""
    data: Data = {
        "outputs": [output.model_dump() for output in result.outputs],
        "resumed_from": result.resumed_from,
        "step": lease.step,
        "late": lease.state is not LeaseState.LIVE,
    }
    accepted = event(EventType.TASK_COMMIT_ACCEPTED, lease, data)
    task = replace(task, state=TaskState.COMPLETED, result=result, reason=None)
    return Change(task, replace(lease, state=LeaseState.COMPLETED), None, (accepted,))


def refuse(lease: LeaseRow, call: str) -> tuple[LeaseRow, tuple[EventDraft, ...]]:
    """Record that a fenced holder made a call: one event for each kind of call of a lease."""
    if call in lease.refused:
        return lease, ()
    kind = EventType.TASK_COMMIT_REJECTED if call == "complete" else EventType.LEASE_REFUSED
    refused = replace(lease, refused=(*lease.refused, call))
    return refused, (event(kind, lease, {"call": call, "lease_state": lease.state.value}),)


def spend(budget: Budget, lease: LeaseRow, decision: Decision, failure: str | None) -> Budget:
    """Return what is left after a failure; of a lost attempt, steps tell whether it got further."""
    spent = budget.spend(decision, failure)
    if decision.counts_as_error:
        return spent
    lost = budget.lose(lease.step)
    return replace(spent, loss_run=lost.loss_run, best_step=lost.best_step)


def fail(task: TaskRow, lease: LeaseRow, decision: Decision, left: Budget, now_ns: int) -> Change:
    """End a holding lease as the policy decided: requeue its task or fail it."""
    ended = replace(lease, state=LeaseState.FAILED, decision=decision)
    counted = decision.counts_as_error
    task = replace(
        task.left_with(left),
        holder=None,
        reason=decision.reason,
        losses=task.losses + (not counted),
    )
    if not decision.retries:
        events = _exhausted(task, lease, decision)
        return Change(replace(task, state=TaskState.FAILED), ended, None, events)
    replaced = decision.action is RecoveryAction.REPLACE_NODE
    backoff_ns = max(1, round(decision.backoff_s * NS_PER_S))
    task = replace(
        task,
        state=TaskState.PENDING,
        not_before_ns=now_ns + backoff_ns,
        backoff_ns=backoff_ns,
        avoid_node=lease.node_id if counted or replaced else None,
    )
    data: Data = {"reason": "attempt_failed", "backoff_s": decision.backoff_s}
    return Change(task, ended, None, (event(EventType.TASK_REQUEUED, lease, data),))


def _exhausted(task: TaskRow, lease: LeaseRow, decision: Decision) -> tuple[EventDraft, ...]:
    if not decision.exhausted:
        return ()
    data: Data = {"errors": task.errors, "losses": task.losses, "reason": decision.reason}
    return (event(EventType.TASK_EXHAUSTED, lease, data),)


def seen(evidence: Evidence) -> Evidence:
    """Return evidence as it is decided upon and recorded: each of its texts of bounded length."""
    return evidence.model_copy(
        update={
            "log_tail": (evidence.log_tail or "")[-MAX_LOG_TAIL:] or None,
            "error_type": _cut(evidence.error_type, MAX_TYPE_NAME),
            "message": _cut(evidence.message, MAX_MESSAGE),
            "error_bases": [base[:MAX_TYPE_NAME] for base in evidence.error_bases],
        }
    )


def _cut(text: str | None, most: int) -> str | None:
    return None if text is None else text[:most]


def failure_event(lease: LeaseRow, reason: str, evidence: Evidence) -> EventDraft:
    """Return the record of what an attempt reported of its end."""
    data: Data = {
        "reason": reason,
        "evidence": evidence.model_dump(mode="json", exclude_defaults=True),
    }
    return event(EventType.TASK_ATTEMPT_FAILED, lease, data)


def decision_events(
    lease: LeaseRow, evidence: Evidence, decision: Decision
) -> tuple[EventDraft, ...]:
    """Return the record of a decision: what the failure is called, what is done about it, why."""
    kept = evidence.model_dump(mode="json", exclude={"log_tail"}, exclude_defaults=True)
    chosen: Data = {**decision.model_dump(mode="json"), "evidence": kept}
    named = ("failure_class", "reason", "policy_version", "evidence")
    classified: Data = {name: chosen[name] for name in named}
    incident = None if decision.history is None else decision.history.freeze
    frozen: tuple[EventDraft, ...] = ()
    if incident is not None:
        data: Data = {**incident.model_dump(mode="json"), "reason": incident.words()}
        frozen = (event(EventType.RECOVERY_FROZEN, lease, data),)
    return (
        event(EventType.FAILURE_CLASSIFIED, lease, classified),
        event(EventType.RECOVERY_ACTION_SELECTED, lease, chosen),
        *frozen,
    )


def ended_job(job: JobRow) -> EventType | None:
    """Return how a job ends by the counts of its tasks, None while it goes on."""
    if job.state.terminal:
        return None
    if job.counts.failed:
        return EventType.JOB_FAILED
    counts = job.counts
    done = counts.pending + counts.leased + counts.cancelled == 0
    return EventType.JOB_SUCCEEDED if done else None
