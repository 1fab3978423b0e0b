"""The index of objects: which bytes a key names, who may write there, what is immutable."""

import re
from dataclasses import dataclass, replace

from pydantic import JsonValue

from flashruntime.errors import Conflict, InvalidInput, NotFound, QuotaExceeded
from flashruntime.leases import transitions, views
from flashruntime.leases.jsontext import clean
from flashruntime.leases.ledger import Ledger, attempt, quick, wanted_job
from flashruntime.leases.record import EventDraft, LeaseRow, LeaseState, ObjectRow
from flashruntime.leases.store import Transaction
from flashruntime.protocol.base import check_key
from flashruntime.protocol.events import EventType
from flashruntime.protocol.tasks import ArtifactPage, ArtifactRecord, CompleteRequest, OutputFile

_LEASE_SEGMENT = re.compile(r"lease-[0-9a-f]{32}")
_ATTEMPT = re.compile(r"/[0-9]{5,}/lease-[0-9a-f]{32}/")


def find_owner(tx: Transaction, key: str) -> LeaseRow | None:
    """Return the innermost lease under whose output prefix a key lies.

    NotFound where that attempt is not on the ledger, as after its job was deleted.
    """
    for segment in reversed(key.split("/")):
        if _LEASE_SEGMENT.fullmatch(segment):
            lease = tx.lease(segment)
            if lease is not None and key.startswith(f"{lease.output_prefix}/"):
                return lease
    if is_output(key):
        raise NotFound(f"{key!r} lies below an attempt that is not on this ledger")
    return None


def is_output(key: str) -> bool:
    """Return whether a key lies where attempts put their outputs."""
    return _ATTEMPT.search(key) is not None


def place(
    tx: Transaction, row: ObjectRow, owner: LeaseRow | None, max_job_bytes: int | None = None
) -> ObjectRow:
    """Write an object unless it contradicts what is accepted or another key's path; Conflict.

    QuotaExceeded if the job of `owner` would store more than it may.
    """
    try:
        check_key(row.key)
    except ValueError as error:
        raise InvalidInput(clean(str(error))) from error
    present = tx.object(row.key)
    if present is not None and present.accepted:
        if present.sha256 != row.sha256:
            raise Conflict(
                f"{row.key!r} belongs to an accepted result (sha256 {present.sha256}) "
                "and cannot change; write to another key"
            )
        return present
    if owner is not None and owner.state is LeaseState.COMPLETED:
        raise Conflict(f"{row.key!r}: lease {owner.lease_id} has completed, its outputs are closed")
    if present is None:
        _check_path(tx, row.key)
    if present != row:
        if owner is not None:
            before = 0 if present is None else present.size_bytes
            charge(tx, owner.job_id, row.size_bytes - before, max_job_bytes)
        tx.put_object(row)
    return row


def charge(tx: Transaction, job_id: str, size_bytes: int, max_job_bytes: int | None) -> None:
    """Add to what a job stores; QuotaExceeded beyond what it may."""
    if size_bytes > 0 and max_job_bytes is not None:
        stored_bytes = tx.stored_bytes(job_id)
        if stored_bytes + size_bytes > max_job_bytes:
            raise over_quota(job_id, stored_bytes, max_job_bytes)
    if size_bytes:
        tx.add_stored_bytes(job_id, size_bytes)


def over_quota(job_id: str, stored_bytes: int, max_job_bytes: int) -> QuotaExceeded:
    """Return the refusal of an upload that takes a job beyond its quota."""
    return QuotaExceeded(
        f"job {job_id} stores {stored_bytes} bytes and may store {max_job_bytes}; let it write "
        "less, or raise FLASHML_MAX_JOB_BYTES on the coordinator"
    )


def _check_path(tx: Transaction, key: str) -> None:
    """Refuse a key that would have to be a file and a directory at once."""
    parent = tx.first_object([key[:at] for at, mark in enumerate(key) if mark == "/"])
    if parent is not None:
        raise Conflict(f"{key!r} lies below {parent!r}, which is an object")
    below = tx.key_below(key)
    if below is not None:
        raise Conflict(f"{key!r} is the prefix of another object, {below!r}")


def check_outputs(
    tx: Transaction, lease: LeaseRow, request: CompleteRequest, required: list[str]
) -> tuple[OutputFile, ...]:
    """Return the outputs that a complete names; Conflict unless all of them are in the store."""
    outputs = list(request.outputs or [])
    if request.output_sha256 is not None:
        outputs.append(
            OutputFile(path="output", key=lease.commit_key, sha256=request.output_sha256)
        )
    if len({o.path for o in outputs}) < len(outputs) or len({o.key for o in outputs}) < len(
        outputs
    ):
        raise InvalidInput("outputs: each path and each key may be named once")
    missing = sorted(set(required) - {output.path for output in outputs})
    if missing:
        raise Conflict(
            f"required outputs {missing} are not among the outputs: upload and name them"
        )
    problems = [problem for o in outputs if (problem := _problem(tx, lease, o))]
    if problems:
        raise Conflict("; ".join(problems[:5]))
    return tuple(outputs)


def _problem(tx: Transaction, lease: LeaseRow, output: OutputFile) -> str | None:
    if not output.key.startswith(f"{lease.output_prefix}/"):
        return f"{output.key!r} is outside of the lease's own {lease.output_prefix!r}"
    row = tx.object(output.key)
    if row is None:
        return f"{output.key!r} is not in the store: upload it first"
    if row.sha256 != output.sha256:
        return f"{output.key!r} has sha256 {row.sha256} in the store, not {output.sha256}"
    damage = tx.damage(row.sha256)
    return None if damage is None else f"{output.key!r} is damaged ({damage}): upload it again"


def accept_outputs(tx: Transaction, lease: LeaseRow, outputs: tuple[OutputFile, ...]) -> None:
    """Make outputs immutable and name the task that they belong to."""
    for output in outputs:
        row = tx.object(output.key)
        if row is None:
            raise NotFound(f"no object {output.key!r}")
        row = replace(row, accepted=True, job_id=lease.job_id, task_id=lease.task_id)
        tx.put_object(replace(row, path=output.path))


@dataclass(frozen=True, slots=True)
class Room:
    """What may still be stored for a job, over what it stores."""

    job_id: str
    stored_bytes: int
    max_job_bytes: int

    def check(self, size_bytes: int) -> None:
        """Raise QuotaExceeded for an upload that is larger than the room."""
        if self.stored_bytes + size_bytes > self.max_job_bytes:
            raise over_quota(self.job_id, self.stored_bytes, self.max_job_bytes)


class ObjectIndex(Ledger):
    """Which bytes each key names; of a job's attempts at most `max_job_bytes` (None: no bound).

    `damage_possible` is False only while the ledger surely holds no record of damage.
    """

    max_job_bytes: int | None = None
    damage_possible = True

    @quick
    def check_holder(self, lease_id: str, call: str) -> LeaseRow:
        """Return the lease if it may still act; Superseded (recorded for `call`), NotFound."""
        with self._store.transaction() as tx:
            task, lease = attempt(tx, lease_id)
            if transitions.holds(task, lease_id):
                return lease
            refusal = self._refuse(tx, task, lease, call)
        raise refusal

    def admit(self, key: str) -> Room | None:
        """Return the room for an upload to `key` before its bytes are read, None: no bound.

        Superseded (recorded) if the lease under whose prefix it lies no longer holds; NotFound.
        """
        with self._store.transaction() as tx:
            owner = find_owner(tx, clean(key))
            if owner is None:
                return None
            task, lease = attempt(tx, owner.lease_id)
            if transitions.holds(task, lease.lease_id):
                return self._room(tx, lease.job_id, key)
            refusal = self._refuse(tx, task, lease, "artifact")
        raise refusal

    def _room(self, tx: Transaction, job_id: str, key: str) -> Room | None:
        if self.max_job_bytes is None:
            return None
        present = tx.object(key)
        replaced = 0 if present is None else present.size_bytes
        return Room(job_id, tx.stored_bytes(job_id) - replaced, self.max_job_bytes)

    def put_object(
        self, key: str, sha256: str, size_bytes: int, lease_id: str | None
    ) -> ArtifactRecord:
        """Record that `key` names these bytes.

        Superseded if `lease_id`, or the lease whose output prefix the key lies under, no longer
        holds; Conflict if the key is accepted with other bytes or clashes with another's path;
        QuotaExceeded. The bytes are in the store: if they were damaged, they are no more.
        """
        row = ObjectRow(key=key, sha256=sha256.lower(), size_bytes=size_bytes)
        with self._store.transaction() as tx:
            owner = find_owner(tx, clean(key))
            owner_id = None if owner is None else owner.lease_id
            for holder_id in dict.fromkeys((owner_id, lease_id)):
                if holder_id is None:
                    continue
                task, lease = attempt(tx, holder_id)
                if not transitions.holds(task, lease.lease_id):
                    refusal = self._refuse(tx, task, lease, "artifact")
                    break
            else:
                if owner is not None and lease_id not in {None, owner.lease_id}:
                    raise Conflict(f"{key!r} lies below the own prefix of lease {owner_id}")
                placed = place(tx, row, owner, self.max_job_bytes)
                if self.damage_possible and tx.heal(row.sha256):
                    self._append(tx, [_restored(row)])
                return views.artifact_record(placed)
        raise refusal

    @quick
    def object(self, key: str) -> ArtifactRecord:
        """Return an object; NotFound."""
        with self._store.transaction() as tx:
            row = tx.object(clean(key))
            if row is None:
                raise NotFound(f"no artifact {clean(key)!r}")
            return views.artifact_record(row, tx.damage(row.sha256))

    def job_objects(self, job_id: str) -> ArtifactPage:
        """Return the accepted outputs of a job; NotFound."""
        with self._store.transaction() as tx:
            rows = tx.accepted_objects(wanted_job(tx, job_id).job_id)
            found = [views.artifact_record(row, tx.damage(row.sha256)) for row in rows]
        return ArtifactPage(items=found)


def _restored(row: ObjectRow) -> EventDraft:
    data: dict[str, JsonValue] = {"key": row.key, "sha256": row.sha256}
    return EventDraft(EventType.ARTIFACT_RESTORED, row.job_id, row.task_id, None, data)
