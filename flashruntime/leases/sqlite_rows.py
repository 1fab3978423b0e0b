"""Rows as the columns of the SQLite ledger, and back, in the order of the schema."""

import json
from datetime import datetime
from typing import Any

from flashruntime.leases.jsontext import dump_model, dumps
from flashruntime.leases.record import (
    EventRow,
    JobRow,
    LeaseRow,
    LeaseState,
    NodeRow,
    ObjectRow,
    TaskCounts,
    TaskResult,
    TaskRow,
)
from flashruntime.protocol.events import EventType
from flashruntime.protocol.failures import Decision
from flashruntime.protocol.jobs import JobState
from flashruntime.protocol.nodes import NodeDuty
from flashruntime.protocol.tasks import OutputFile, TaskState

Values = tuple[Any, ...]


def job_values(job: JobRow) -> Values:
    """Return the columns of `jobs` after `seq`."""
    counts = job.counts
    return (
        job.job_id,
        job.name,
        job.state.value,
        job.reason,
        job.created_at.isoformat(),
        None if job.finished_at is None else job.finished_at.isoformat(),
        job.lease_ns,
        job.max_errors,
        job.output_prefix,
        job.idempotency_key,
        job.request_digest,
        counts.pending,
        counts.leased,
        counts.completed,
        counts.failed,
        counts.cancelled,
        job.need,
    )


def job_row(values: Values) -> JobRow:
    """Return a job from all columns of `jobs`."""
    finished = values[6]
    converted: Values = (
        *values[:3],
        JobState(values[3]),
        values[4],
        datetime.fromisoformat(values[5]),
        None if finished is None else datetime.fromisoformat(finished),
        *values[7:12],
        TaskCounts(*values[12:17]),
        values[17],
    )
    return JobRow(*converted)


def task_values(task: TaskRow) -> Values:
    """Return the columns of `tasks`."""
    return (
        task.task_id,
        task.job_id,
        task.job_seq,
        task.index,
        task.state.value,
        task.lease_id,
        task.holder,
        task.attempts,
        task.errors,
        task.losses,
        task.loss_run,
        task.best_step,
        task.not_before_ns,
        task.backoff_ns,
        task.avoid_node,
        task.last_failure,
        task.reason,
        None if task.result is None else _result_json(task.result),
        task.same_run,
        task.need,
        task.suspect_step,
        task.failed_resume,
        task.high_step,
        task.recomputed,
    )


def task_row(values: Values) -> TaskRow:
    """Return a task from all columns of `tasks`."""
    result = None if values[17] is None else _result(values[17])
    converted: Values = (*values[:4], TaskState(values[4]), *values[5:17], result, *values[18:])
    return TaskRow(*converted)


def _result_json(result: TaskResult) -> str:
    return dumps(
        {
            "outputs": [output.model_dump() for output in result.outputs],
            "metrics_json": result.metrics_json,
            "resumed_from": result.resumed_from,
        },
        "result",
    )


def _result(text: str) -> TaskResult:
    data = json.loads(text)
    outputs = tuple(OutputFile.model_validate(output) for output in data["outputs"])
    return TaskResult(outputs, data["metrics_json"], data["resumed_from"])


def lease_values(lease: LeaseRow) -> Values:
    """Return the columns of `leases`."""
    return (
        lease.lease_id,
        lease.task_id,
        lease.job_id,
        lease.node_id,
        lease.session_id,
        lease.claim_id,
        lease.attempt_number,
        lease.state.value,
        lease.lease_ns,
        lease.deadline_ns,
        lease.output_prefix,
        lease.step,
        lease.metrics_json,
        json.dumps(lease.refused),
        None if lease.decision is None else dump_model(lease.decision),
        lease.resumed_from,
        lease.checkpoint_step,
    )


def lease_row(values: Values) -> LeaseRow:
    """Return a lease from all columns of `leases`."""
    decision = None if values[14] is None else Decision.model_validate_json(values[14])
    refused = tuple(json.loads(values[13]))
    state, told = LeaseState(values[7]), values[15:]
    converted: Values = (*values[:7], state, *values[8:13], refused, decision, *told)
    return LeaseRow(*converted)


def event_values(event: EventRow) -> Values:
    """Return the columns of `events` after `event_id`."""
    return (
        event.type.value,
        event.job_id,
        event.task_id,
        event.lease_id,
        event.at.isoformat(),
        event.mono_ns,
        event.boot_id,
        event.data_json,
    )


def event_row(values: Values) -> EventRow:
    """Return an event from all columns of `events`."""
    event_id, kind, job_id, task_id, lease_id, at, *rest = values
    stamp = datetime.fromisoformat(at)
    return EventRow(event_id, EventType(kind), job_id, task_id, lease_id, stamp, *rest)


def object_values(row: ObjectRow) -> Values:
    """Return the columns of `objects`."""
    accepted = int(row.accepted)
    return (row.key, row.sha256, row.size_bytes, accepted, row.job_id, row.task_id, row.path)


def object_row(values: Values) -> ObjectRow:
    """Return an object from all columns of `objects`."""
    key, sha256, size_bytes, accepted, *rest = values
    return ObjectRow(key, sha256, size_bytes, bool(accepted), *rest)


def node_values(row: NodeRow) -> Values:
    """Return the columns of `nodes`."""
    registered = row.registered_at.isoformat()
    known = (row.node_id, row.session_id, row.hostname, registered, row.registration_json)
    return (*known, row.duty.value)


def node_row(values: Values) -> NodeRow:
    """Return a node from all columns of `nodes`."""
    node_id, session_id, hostname, registered, registration_json, duty = values
    stamp = datetime.fromisoformat(registered)
    return NodeRow(node_id, session_id, hostname, stamp, registration_json, NodeDuty(duty))
