"""Checkpoints in a ledger in memory; what SQLite answers by an index is scanned for here."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import TypeVar

from flashruntime.leases.checkpoint_tables import CheckpointRow, SuccessionRow
from flashruntime.leases.record import TaskRow
from flashruntime.protocol.checkpoints import PartSize

K = TypeVar("K")
V = TypeVar("V")


@dataclass(frozen=True, slots=True)
class _Reference:
    owner: str
    part: PartSize
    reserved: bool = False


class MemoryCheckpoints:
    """The part of a store that knows checkpoints; each change can be undone by the store."""

    _tasks: dict[str, TaskRow]

    def __init__(self) -> None:
        super().__init__()
        self._commits: dict[str, int] = {"seq": 0}
        self._checkpoints: dict[str, tuple[CheckpointRow, ...]] = {}
        self._manifests: dict[tuple[str, str], str | None] = {}
        self._references: dict[str, tuple[_Reference, ...]] = {}
        self._successions: dict[str, tuple[SuccessionRow, ...]] = {}

    def _set(self, table: dict[K, V], key: K, value: V) -> None:
        """Change a table so that it can be undone."""
        raise NotImplementedError

    def checkpoint(self, task_id: str, manifest_id: str) -> CheckpointRow | None:
        """Return a checkpoint of a task."""
        rows = self._checkpoints.get(task_id, ())
        return next((row for row in rows if row.manifest_id == manifest_id), None)

    def checkpoints(self, task_id: str) -> list[CheckpointRow]:
        """Return the checkpoints of a task, greatest step first, of one step the latest commit."""
        rows = self._checkpoints.get(task_id, ())
        return sorted(rows, key=lambda row: (-row.step, -row.seq))

    def manifest_json(self, task_id: str, manifest_id: str) -> str:
        """Return the manifest of an existing checkpoint that is not set aside."""
        return str(self._manifests[task_id, manifest_id])

    def add_checkpoint(
        self, row: CheckpointRow, manifest_json: str, parts: Sequence[PartSize]
    ) -> None:
        """Insert a checkpoint, with a reference to each of its parts."""
        seq = self._commits["seq"] + 1
        self._set(self._commits, "seq", seq)
        rows = (*self._checkpoints.get(row.task_id, ()), replace(row, seq=seq))
        self._set(self._checkpoints, row.task_id, rows)
        self._set(self._manifests, (row.task_id, row.manifest_id), manifest_json)
        self._refer(row.task_id, [_Reference(row.manifest_id, part) for part in parts])

    def set_checkpoint_aside(self, task_id: str, manifest_id: str, reason: str) -> list[str]:
        """Keep the row with a reason; drop manifest and references, and return these."""
        rows = tuple(
            replace(row, set_aside=reason) if row.manifest_id == manifest_id else row
            for row in self._checkpoints.get(task_id, ())
        )
        self._set(self._checkpoints, task_id, rows)
        return self._drop_bytes(task_id, manifest_id)

    def remove_checkpoint(self, task_id: str, manifest_id: str) -> list[str]:
        """Remove a checkpoint and its references, and return these."""
        rows = self._checkpoints.get(task_id, ())
        left = tuple(row for row in rows if row.manifest_id != manifest_id)
        self._set(self._checkpoints, task_id, left)
        return self._drop_bytes(task_id, manifest_id)

    def _drop_bytes(self, task_id: str, owner: str) -> list[str]:
        self._set(self._manifests, (task_id, owner), None)
        dropped = [each for each in self._references.get(task_id, ()) if each.owner == owner]
        self._filter(task_id, lambda reference: reference.owner != owner)
        return [each.part.sha256 for each in dropped]

    def add_succession(self, row: SuccessionRow) -> None:
        """Insert what an attempt took over, unless it is known."""
        rows = self._successions.get(row.task_id, ())
        if all(known.attempt_number != row.attempt_number for known in rows):
            self._set(self._successions, row.task_id, (*rows, row))

    def successions(self, task_id: str) -> list[SuccessionRow]:
        """Return the attempts of a task that committed, in their order."""
        return sorted(self._successions.get(task_id, ()), key=lambda row: row.attempt_number)

    def reserve_parts(self, task_id: str, lease_id: str, parts: Sequence[PartSize]) -> None:
        """Refer to parts that a lease announces, in place of all announced for the task before."""
        self.release_parts(task_id)
        self._refer(task_id, [_Reference(lease_id, part, reserved=True) for part in parts])

    def part_size(self, task_id: str, sha256: str, lease_id: str | None) -> int | None:
        """Return the size of a part that a lease announced, with None that a checkpoint names."""
        for each in self._references.get(task_id, ()):
            announced = each.reserved and each.owner == lease_id
            named = lease_id is None and not each.reserved
            if each.part.sha256 == sha256 and (announced or named):
                return each.part.size_bytes
        return None

    def release_parts(self, task_id: str) -> None:
        """Drop what was announced for a task."""
        self._filter(task_id, lambda reference: not reference.reserved)

    def release_ended(self) -> int:
        """Drop what was announced for tasks that have ended; return how many parts."""
        count = 0
        for task_id, references in list(self._references.items()):
            task = self._tasks.get(task_id)
            if task is None or task.state.terminal:
                count += sum(reference.reserved for reference in references)
                self.release_parts(task_id)
        return count

    def referenced_parts(self, after: str, limit: int) -> list[str]:
        """Return digests beyond `after` that are referenced, ascending and each once."""
        return sorted(digest for digest in self._digests() if digest > after)[:limit]

    def committed_parts(self, after: str, limit: int) -> list[tuple[str, int]]:
        """Return digests beyond `after` that checkpoints name, ascending, with their sizes."""
        known = (each for task in self._references.values() for each in task if not each.reserved)
        sizes = {each.part.sha256: each.part.size_bytes for each in known}
        return sorted((digest, size) for digest, size in sizes.items() if digest > after)[:limit]

    def is_referenced(self, sha256: str) -> bool:
        """Return whether anything refers to a part."""
        return sha256 in self._digests()

    def _digests(self) -> set[str]:
        return {each.part.sha256 for known in self._references.values() for each in known}

    def tasks_with_part(self, sha256: str, limit: int) -> list[str]:
        """Return tasks that refer to a part."""
        found = (
            task_id
            for task_id, references in self._references.items()
            if any(each.part.sha256 == sha256 for each in references)
        )
        return list(islice(found, limit))

    def forget_checkpoints(self, job_id: str, limit: int) -> list[str] | None:
        """Remove some of this for the tasks of a job; None when nothing is left."""
        for task_id in sorted({*self._checkpoints, *self._references, *self._successions}):
            references = self._references.get(task_id, ())
            rows, known = self._checkpoints.get(task_id, ()), self._successions.get(task_id, ())
            if task_id.rpartition("-")[0] != job_id or not (references or rows or known):
                continue
            self._set(self._references, task_id, references[limit:])
            if not references:
                self._set(self._checkpoints, task_id, rows[limit:])
                self._set(self._successions, task_id, known[limit:])
            return [each.part.sha256 for each in references[:limit]]
        return None

    def _refer(self, task_id: str, added: list[_Reference]) -> None:
        self._set(self._references, task_id, (*self._references.get(task_id, ()), *added))

    def _filter(self, task_id: str, wanted: Callable[[_Reference], bool]) -> None:
        kept = tuple(filter(wanted, self._references.get(task_id, ())))
        self._set(self._references, task_id, kept)
