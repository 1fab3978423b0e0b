"""The catalogue of checkpoints whose bytes are in the coordinator's store.

The lease fences it: only the holder of a task adds to it, so what is there was committed by
attempts in their order. A commit says what its attempt took over; checkpoints of other attempts
beyond that step are no longer of the task's chain and leave the catalogue.
"""

from collections.abc import Collection, Iterator
from dataclasses import replace

from pydantic import JsonValue

from flashruntime.errors import Conflict, FlashError, NotFound, Superseded
from flashruntime.leases import checkpoint_rules as rules
from flashruntime.leases import progress, transitions
from flashruntime.leases.checkpoint_rules import Committed, Found, Offer
from flashruntime.leases.checkpoint_tables import CheckpointRow, SuccessionRow
from flashruntime.leases.jsontext import clean
from flashruntime.leases.ledger import Ledger, newest_lease
from flashruntime.leases.record import LeaseRow, LeaseState, TaskRow
from flashruntime.leases.store import Transaction
from flashruntime.protocol.checkpoints import (
    CheckpointPage,
    CheckpointRecord,
    LatestCheckpoint,
    LostWork,
    Manifest,
    PartSize,
    TakenOver,
    TaskName,
)
from flashruntime.protocol.events import EventType

PAGE = 1_000
MAX_REASON = 4_000


class CheckpointCatalogue(Ledger):
    """Which checkpoints of each task can be resumed from, and which bytes they need."""

    def announce_parts(self, name: TaskName, lease_id: str, parts: Collection[PartSize]) -> None:
        """Refer to the parts of an attempt's next checkpoint, so that none is collected.

        Superseded (recorded) for an attempt that no longer holds its task, NotFound, Conflict.
        """
        with self._store.transaction() as tx:
            task, lease = rules.named(tx, name, lease_id)
            if rules.may_commit(task, lease):
                tx.reserve_parts(task.task_id, lease_id, list(parts))
                return
            refusal = self._fenced(tx, task, lease, {})
        raise refusal

    def announced_size(self, name: TaskName, lease_id: str, sha256: str) -> int:
        """Return how many bytes an announced part has; Conflict if it was not announced."""
        with self._store.transaction() as tx:
            task, lease = rules.named(tx, name, lease_id)
            if rules.may_commit(task, lease):
                size_bytes = tx.part_size(task.task_id, sha256, lease_id)
                if size_bytes is None:
                    raise Conflict(f"part {sha256} was not announced by lease {lease_id}")
                return size_bytes
            refusal = self._fenced(tx, task, lease, {})
        raise refusal

    def commit_checkpoint(self, name: TaskName, lease_id: str, offer: Offer) -> Committed:
        """Add a checkpoint to the catalogue; repeated, the first answer is given.

        Conflict or Superseded, each recorded as CHECKPOINT_REJECTED, with nothing changed.
        """
        refusal: FlashError
        with self._store.transaction() as tx:
            task, lease = rules.named(tx, name, lease_id)
            known = rules.recorded_before(tx, task, lease, offer)
            if known is not None:
                return Committed(rules.record(known))
            about = rules.about(offer)
            if rules.may_commit(task, lease):
                problem = offer.problem or rules.contradiction(tx, task, lease, offer.manifest)
                if problem is None and offer.manifest is not None:
                    return self._commit(tx, task, lease, offer.manifest, offer)
                words = clean(problem or "there is no manifest")[:MAX_REASON]
                self._reject(tx, lease, "checkpoint_bytes", {**about, "reason": words})
                refusal = Conflict(words)
            else:
                refusal = self._fenced(tx, task, lease, about)
        raise refusal

    def _commit(
        self, tx: Transaction, task: TaskRow, lease: LeaseRow, manifest: Manifest, offer: Offer
    ) -> Committed:
        """Add, drop what left the chain and what retention no longer keeps, and tell."""
        left = rules.outside_chain(tx, task, lease, offer.takes_over)
        taken = offer.takes_over
        step, manifest_id = (taken.step, clean(taken.manifest_id)) if taken else (None, None)
        number, lease_id = lease.attempt_number, lease.lease_id
        tx.add_succession(SuccessionRow(task.task_id, number, lease_id, step, manifest_id))
        row = CheckpointRow(
            task_id=task.task_id,
            manifest_id=manifest.manifest_id,
            job_id=task.job_id,
            lease_id=lease.lease_id,
            attempt_number=lease.attempt_number,
            step=manifest.step,
            size_bytes=sum(part.size_bytes for part in manifest.parts),
            parts=len(manifest.parts),
            digest=manifest.digest,
            committed_at=self._clock.utc_now(),
        )
        parts = [PartSize(sha256=p.sha256, size_bytes=p.size_bytes) for p in manifest.parts]
        tx.add_checkpoint(row, offer.manifest_json, parts)
        tx.release_parts(task.task_id)
        dropped: set[str] = set()
        for gone in left:
            dropped.update(tx.remove_checkpoint(task.task_id, gone))
        for gone in rules.surplus(tx, task, row.step):
            dropped.update(tx.remove_checkpoint(task.task_id, gone))
        data = {**rules.about(offer), "size_bytes": row.size_bytes, "parts": row.parts}
        data |= {"takes_over": step, "left_chain": list[JsonValue](left)}
        self._append(tx, [transitions.event(EventType.CHECKPOINT_MANIFEST_COMMITTED, lease, data)])
        freed = tuple(sha256 for sha256 in sorted(dropped) if not tx.is_referenced(sha256))
        return Committed(rules.record(row), freed)

    def set_checkpoint_aside(
        self, name: TaskName, lease_id: str, manifest_id: str, reason: str
    ) -> CheckpointRecord:
        """Note that a checkpoint verifies and is of no use; it is never resumed from again."""
        with self._store.transaction() as tx:
            task, lease = rules.named(tx, name, lease_id)
            row = tx.checkpoint(task.task_id, clean(manifest_id))
            if row is None:
                raise NotFound(f"task {task.task_id} has no checkpoint {clean(manifest_id)!r}")
            if row.set_aside is not None:
                return rules.record(row)
            if rules.may_commit(task, lease):
                return rules.record(self._set_aside(tx, lease, row, clean(reason)))
            refusal = self._fenced(tx, task, lease, {"manifest_id": row.manifest_id})
        raise refusal

    def _set_aside(
        self, tx: Transaction, lease: LeaseRow, row: CheckpointRow, reason: str
    ) -> CheckpointRow:
        tx.set_checkpoint_aside(row.task_id, row.manifest_id, reason)
        data: dict[str, JsonValue] = {
            "manifest_id": row.manifest_id,
            "step": row.step,
            "reason": reason,
        }
        self._append(tx, [transitions.event(EventType.CHECKPOINT_SET_ASIDE, lease, data)])
        return replace(row, set_aside=reason)

    def _set_suspect_aside(self, tx: Transaction, lease: LeaseRow, step: int) -> None:
        """Set aside what two attempts in a row went on from in vain."""
        reason = "attempts that went on from it ended the same way"
        for row in tx.checkpoints(lease.task_id):
            if row.step == step and row.set_aside is None:
                self._set_aside(tx, lease, row, reason)

    def checkpoints(self, name: TaskName) -> CheckpointPage:
        """Return the checkpoints of a task, newest first; NotFound."""
        with self._store.transaction() as tx:
            rows = tx.checkpoints(rules.wanted_task(tx, name).task_id)
        return CheckpointPage(items=[rules.record(row) for row in rows])

    def newest_checkpoint(self, name: TaskName, skip: Collection[str]) -> Found | None:
        """Return the checkpoint to resume from, leaving out those whose ids are in `skip`."""
        with self._store.transaction() as tx:
            task = rules.wanted_task(tx, name)
            for row in tx.checkpoints(task.task_id):
                if row.set_aside is None and row.manifest_id not in skip:
                    return Found(rules.record(row), tx.manifest_json(task.task_id, row.manifest_id))
        return None

    def checkpoint_state(self, name: TaskName) -> LatestCheckpoint:
        """Return what a tree elsewhere must know of a task's chain, without its newest checkpoint.

        NotFound.
        """
        with self._store.transaction() as tx:
            task_id = rules.wanted_task(tx, name).task_id
            aside = [row for row in tx.checkpoints(task_id) if row.set_aside is not None]
            known = tx.successions(task_id)
        return LatestCheckpoint(
            lineage=[rules.succession(row) for row in known],
            set_aside=[TakenOver(step=row.step, manifest_id=row.manifest_id) for row in aside],
        )

    def referenced_size(self, name: TaskName, sha256: str) -> int:
        """Return the size of a part that a checkpoint of the task names; NotFound."""
        with self._store.transaction() as tx:
            task = rules.wanted_task(tx, name)
            size_bytes = tx.part_size(task.task_id, sha256, None)
        if size_bytes is None:
            raise NotFound(f"no checkpoint of task {task.task_id} has a part {sha256}")
        return size_bytes

    def lost_work(self, name: TaskName) -> LostWork:
        """Return how many steps a loss of the newest attempt would cost, and earlier ones did."""
        with self._store.transaction() as tx:
            task = rules.wanted_task(tx, name)
            lease = newest_lease(tx, task)
            steps = [row.step for row in tx.checkpoints(task.task_id) if row.set_aside is None]
        stored = max(steps, default=None)
        at = progress.saved(lease) if stored is None else stored
        reported = None if lease is None else lease.step
        return LostWork(
            task_id=task.task_id,
            reported_step=reported,
            checkpoint_step=at,
            stored=stored is not None,
            would_recompute=0 if task.state.terminal else max(0, (reported or 0) - (at or 0)),
            recomputed=task.recomputed + progress.recomputed(task, lease),
        )

    def referenced_parts(self) -> Iterator[str]:
        """Yield the digests that checkpoints or announcements refer to, ascending, in pages.

        What was announced for tasks that have ended is dropped first. Whoever removes bytes asks
        `is_part_referenced` again, on the ledger's thread, right before: an announcement is on
        record before the store is looked at.
        """
        self.release_announcements()
        after, page = "", [""]
        while page:
            with self._store.transaction() as tx:
                page = tx.referenced_parts(after, PAGE)
            yield from page
            after = page[-1] if page else after

    def release_announcements(self) -> int:
        """Drop what was announced for tasks that have ended; return how many parts."""
        with self._store.transaction() as tx:
            return tx.release_ended()

    def is_part_referenced(self, sha256: str) -> bool:
        """Return whether the bytes of a part are needed."""
        with self._store.transaction() as tx:
            return tx.is_referenced(sha256)

    def _fenced(
        self, tx: Transaction, task: TaskRow, lease: LeaseRow, about: dict[str, JsonValue]
    ) -> FlashError:
        """Record the call of an attempt that no longer holds its task; return what to raise.

        One that has completed is late, but nobody's successor: that is no event.
        """
        call = "checkpoint"
        if lease.state is LeaseState.COMPLETED:
            return Superseded(f"lease {lease.lease_id} has completed, its checkpoints are closed")
        data: dict[str, JsonValue] = {"call": call, "lease_state": lease.state.value}
        lease = self._reject(tx, lease, call, {**about, **data})
        return self._refuse(tx, task, lease, call)

    def _reject(
        self, tx: Transaction, lease: LeaseRow, call: str, data: dict[str, JsonValue]
    ) -> LeaseRow:
        """Record one CHECKPOINT_REJECTED for each kind of reason of a lease."""
        if call in lease.refused:
            return lease
        lease = replace(lease, refused=(*lease.refused, call))
        tx.put_lease(lease)
        self._append(tx, [transitions.event(EventType.CHECKPOINT_REJECTED, lease, data)])
        return lease
