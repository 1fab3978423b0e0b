"""The rules of the catalogue: which checkpoint may enter it, and which ones leave it then."""

import re
from dataclasses import dataclass

from pydantic import JsonValue

from flashruntime.errors import Conflict, NotFound
from flashruntime.leases import transitions, views
from flashruntime.leases.checkpoint_tables import CheckpointRow, SuccessionRow
from flashruntime.leases.jsontext import clean
from flashruntime.leases.ledger import attempt, wanted_job
from flashruntime.leases.record import LeaseRow, LeaseState, TaskRow
from flashruntime.leases.store import Transaction
from flashruntime.protocol.checkpoints import (
    CheckpointRecord,
    Manifest,
    Succession,
    TakenOver,
    TaskName,
)

_INDEX = re.compile(r"[0-9]{1,9}")
_MANIFEST_ID = re.compile(r"(?!lease-)[A-Za-z0-9][A-Za-z0-9._-]{0,127}")
_OPEN = {LeaseState.LIVE, LeaseState.LAPSED}


@dataclass(frozen=True, slots=True)
class Offer:
    """A checkpoint to commit; `problem` says why it cannot be, as far as its bytes tell."""

    manifest: Manifest | None
    manifest_json: str
    takes_over: TakenOver | None
    problem: str | None = None


@dataclass(frozen=True, slots=True)
class Committed:
    """A checkpoint that was added, and the parts that no checkpoint needs since."""

    record: CheckpointRecord
    freed: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Found:
    """The newest checkpoint of a task, with the manifest that names its parts."""

    record: CheckpointRecord
    manifest_json: str


def may_commit(task: TaskRow, lease: LeaseRow) -> bool:
    """Return whether an attempt may add to the catalogue: it holds its task and has not ended."""
    return transitions.holds(task, lease.lease_id) and lease.state in _OPEN


def wanted_task(tx: Transaction, name: TaskName) -> TaskRow:
    """Return the task that a path names; NotFound."""
    job_id = wanted_job(tx, name.job_id).job_id
    by_index = _INDEX.fullmatch(name.task)
    task = tx.task(f"{job_id}-{int(name.task):05d}" if by_index else clean(name.task))
    if task is None or task.job_id != job_id:
        raise NotFound(f"job {job_id} has no task {clean(name.task)[:80]!r}; name its index or id")
    return task


def named(tx: Transaction, name: TaskName, lease_id: str) -> tuple[TaskRow, LeaseRow]:
    """Return a task and a lease of it; NotFound, Conflict for a lease of another task."""
    task = wanted_task(tx, name)
    of_lease, lease = attempt(tx, lease_id)
    if of_lease.task_id != task.task_id:
        raise Conflict(f"lease {lease.lease_id} is one of task {of_lease.task_id}")
    return task, lease


def about(offer: Offer) -> dict[str, JsonValue]:
    """Return what an event says of a checkpoint, whatever its manifest holds."""
    if offer.manifest is None:
        return {}
    return {"manifest_id": clean(offer.manifest.manifest_id)[:256], "step": offer.manifest.step}


def recorded_before(
    tx: Transaction, task: TaskRow, lease: LeaseRow, offer: Offer
) -> CheckpointRow | None:
    """Return the row that the same commit has made before."""
    if offer.manifest is None:
        return None
    row = tx.checkpoint(task.task_id, clean(offer.manifest.manifest_id))
    same = row is not None and (row.lease_id, row.digest) == (lease.lease_id, offer.manifest.digest)
    return row if same else None


def contradiction(
    tx: Transaction, task: TaskRow, lease: LeaseRow, manifest: Manifest | None
) -> str | None:
    """Return why a manifest cannot be one of this attempt, None if it can."""
    if manifest is None:
        return "there is no manifest"
    if not _MANIFEST_ID.fullmatch(manifest.manifest_id):
        return f"manifest_id {manifest.manifest_id[:80]!r} must be a plain name of 1 to 128"
    if manifest.job_id != task.job_id or manifest.attempt_id != lease.lease_id:
        return (
            f"the manifest is one of attempt {manifest.attempt_id[:80]!r} of job "
            f"{manifest.job_id[:80]!r}, not of lease {lease.lease_id} of job {task.job_id}"
        )
    if tx.checkpoint(task.task_id, manifest.manifest_id) is not None:
        return f"manifest_id {manifest.manifest_id!r} names another checkpoint of this task"
    return None


def outside_chain(
    tx: Transaction, task: TaskRow, lease: LeaseRow, taken: TakenOver | None
) -> list[str]:
    """Return the ids of what other attempts committed beyond what this one took over."""
    cap = -1 if taken is None else taken.step
    return [
        row.manifest_id
        for row in tx.checkpoints(task.task_id)
        if row.lease_id != lease.lease_id and row.set_aside is None and row.step > cap
    ]


def surplus(tx: Transaction, task: TaskRow, step: int) -> list[str]:
    """Return what retention drops: it keeps the committed step and the `keep` - 1 before it.

    As in a tree, later steps are left alone.
    """
    keep = views.payload(tx.payload_json(task.task_id)).checkpoint.keep
    rows = [r for r in tx.checkpoints(task.task_id) if r.set_aside is None and r.step <= step]
    return [row.manifest_id for row in rows[keep:]]


def record(row: CheckpointRow) -> CheckpointRecord:
    """Return a row on the wire."""
    return CheckpointRecord(
        task_id=row.task_id,
        manifest_id=row.manifest_id,
        step=row.step,
        lease_id=row.lease_id,
        attempt_number=row.attempt_number,
        parts=row.parts,
        size_bytes=row.size_bytes,
        committed_at=row.committed_at,
        set_aside=row.set_aside,
    )


def succession(row: SuccessionRow) -> Succession:
    """Return a row on the wire."""
    taken = None
    if row.step is not None and row.manifest_id is not None:
        taken = TakenOver(step=row.step, manifest_id=row.manifest_id)
    return Succession(lease_id=row.lease_id, attempt_number=row.attempt_number, takes_over=taken)
