"""Rows as wire models."""

import json
from datetime import datetime, timedelta
from urllib.parse import quote

from flashruntime.leases.record import EventRow, JobRow, LeaseRow, ObjectRow, TaskRow
from flashruntime.leases.transitions import NS_PER_S
from flashruntime.protocol.events import Event
from flashruntime.protocol.jobs import JobRecord, JobSpec
from flashruntime.protocol.tasks import (
    ArtifactRecord,
    Lease,
    LeaseStatus,
    TaskPayload,
    TaskRecord,
)


def payload(payload_json: str) -> TaskPayload:
    """Return a stored payload."""
    return TaskPayload.model_validate_json(payload_json)


def job_record(job: JobRow, spec: JobSpec | None = None) -> JobRecord:
    """Return a job as its submitter sees it."""
    return JobRecord(
        job_id=job.job_id,
        name=job.name,
        state=job.state,
        reason=job.reason,
        created_at=job.created_at,
        finished_at=job.finished_at,
        tasks=job.counts.by_state(),
        spec=spec,
    )


def metrics_of(task: TaskRow, lease: LeaseRow | None) -> str | None:
    """Return the metrics of a task's result, before there is one those of its newest lease."""
    source = task.result or lease
    return None if source is None else source.metrics_json


def task_record(task: TaskRow, lease: LeaseRow | None, payload_json: str) -> TaskRecord:
    """Return a task with what is known of its newest lease."""
    result = task.result
    metrics_json = metrics_of(task, lease)
    return TaskRecord(
        task_id=task.task_id,
        job_id=task.job_id,
        index=task.index,
        state=task.state,
        params=payload(payload_json).params,
        attempts=task.attempts,
        errors=task.errors,
        losses=task.losses,
        lease_id=task.lease_id,
        node_id=lease.node_id if lease else None,
        step=lease.step if lease else None,
        reason=task.reason,
        metrics=json.loads(metrics_json) if metrics_json else None,
        resumed_from=result.resumed_from if result else lease.resumed_from if lease else None,
        outputs=list(result.outputs) if result else [],
    )


def lease_view(
    lease: LeaseRow, task: TaskRow, payload_json: str, now_ns: int, wall: datetime
) -> Lease:
    """Return a lease as its holder sees it."""
    return Lease(
        lease_id=lease.lease_id,
        task_id=lease.task_id,
        job_id=lease.job_id,
        task_index=task.index,
        node_id=lease.node_id,
        attempt_number=lease.attempt_number,
        lease_seconds=lease.lease_ns / NS_PER_S,
        deadline=wall + _ns(lease.deadline_ns - now_ns),
        commit_key=lease.commit_key,
        output_prefix=lease.output_prefix,
        payload=payload(payload_json),
        suspect_step=task.suspect_step,
    )


def lease_status(lease: LeaseRow, wall: datetime) -> LeaseStatus:
    """Return a lease that was renewed just now."""
    return LeaseStatus(
        lease_id=lease.lease_id,
        task_id=lease.task_id,
        attempt_number=lease.attempt_number,
        lease_seconds=lease.lease_ns / NS_PER_S,
        deadline=wall + _ns(lease.lease_ns),
    )


def event_view(row: EventRow) -> Event:
    """Return an event as its readers see it."""
    return Event(
        id=row.event_id,
        job_id=row.job_id,
        task_id=row.task_id,
        lease_id=row.lease_id,
        type=row.type,
        at=row.at,
        mono_ns=row.mono_ns,
        boot_id=row.boot_id,
        data=json.loads(row.data_json),
    )


def artifact_record(row: ObjectRow, damaged: str | None = None) -> ArtifactRecord:
    """Return an object under its address relative to the coordinator."""
    return ArtifactRecord(
        uri=f"/v1alpha1/artifacts/{quote(row.key)}",
        object_key=row.key,
        sha256=row.sha256,
        size_bytes=row.size_bytes,
        task_id=row.task_id,
        path=row.path,
        accepted=row.accepted,
        damaged=damaged,
    )


def _ns(duration_ns: int) -> timedelta:
    return timedelta(microseconds=duration_ns / 1_000)
