"""What the ledger holds of checkpoints, and the operations on it."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol

from flashruntime.protocol.checkpoints import PartSize


@dataclass(frozen=True, slots=True)
class CheckpointRow:
    """A committed checkpoint; one that is `set_aside` has a reason there, and no bytes any more.

    The store assigns `seq`, which orders commits.
    """

    task_id: str
    manifest_id: str
    job_id: str
    lease_id: str
    attempt_number: int
    step: int
    size_bytes: int
    parts: int
    digest: str
    committed_at: datetime
    set_aside: str | None = None
    seq: int = 0


@dataclass(frozen=True, slots=True)
class SuccessionRow:
    """What an attempt that committed had taken over: a checkpoint, or nothing."""

    task_id: str
    attempt_number: int
    lease_id: str
    step: int | None
    manifest_id: str | None


class CheckpointTables(Protocol):
    """Operations on checkpoints within a transaction.

    A part is referenced by the checkpoints that name it, and by the attempt that announced it.
    """

    def checkpoint(self, task_id: str, manifest_id: str) -> CheckpointRow | None:
        """Return a checkpoint of a task."""
        ...

    def checkpoints(self, task_id: str) -> list[CheckpointRow]:
        """Return the checkpoints of a task, greatest step first, of one step the latest commit."""
        ...

    def manifest_json(self, task_id: str, manifest_id: str) -> str:
        """Return the manifest of an existing checkpoint that is not set aside."""
        ...

    def add_checkpoint(
        self, row: CheckpointRow, manifest_json: str, parts: Sequence[PartSize]
    ) -> None:
        """Insert a checkpoint, with a reference to each of its parts."""
        ...

    def set_checkpoint_aside(self, task_id: str, manifest_id: str, reason: str) -> list[str]:
        """Keep the row with a reason; drop manifest and references, and return these."""
        ...

    def remove_checkpoint(self, task_id: str, manifest_id: str) -> list[str]:
        """Remove a checkpoint and its references, and return these."""
        ...

    def add_succession(self, row: SuccessionRow) -> None:
        """Insert what an attempt took over, unless it is known."""
        ...

    def successions(self, task_id: str) -> list[SuccessionRow]:
        """Return the attempts of a task that committed, in their order."""
        ...

    def reserve_parts(self, task_id: str, lease_id: str, parts: Sequence[PartSize]) -> None:
        """Refer to parts that a lease announces, in place of all announced for the task before."""
        ...

    def part_size(self, task_id: str, sha256: str, lease_id: str | None) -> int | None:
        """Return the size of a part that a lease announced, with None that a checkpoint names."""
        ...

    def release_parts(self, task_id: str) -> None:
        """Drop what was announced for a task."""
        ...

    def release_ended(self) -> int:
        """Drop what was announced for tasks that have ended; return how many parts."""
        ...

    def referenced_parts(self, after: str, limit: int) -> list[str]:
        """Return digests beyond `after` that are referenced, ascending and each once."""
        ...

    def committed_parts(self, after: str, limit: int) -> list[tuple[str, int]]:
        """Return digests beyond `after` that checkpoints name, ascending, with their sizes."""
        ...

    def is_referenced(self, sha256: str) -> bool:
        """Return whether anything refers to a part."""
        ...

    def tasks_with_part(self, sha256: str, limit: int) -> list[str]:
        """Return tasks that refer to a part."""
        ...

    def forget_checkpoints(self, job_id: str, limit: int) -> list[str] | None:
        """Remove some of this for the tasks of a job; None when nothing is left.

        Returns the digests of the references that are gone.
        """
        ...
