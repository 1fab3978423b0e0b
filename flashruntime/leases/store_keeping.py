"""The part of the port to a ledger that keeps it bounded: what ages, what is stored for whom."""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol

from flashruntime.leases.record import JobRow, ObjectRow


@dataclass(frozen=True, slots=True)
class Removal:
    """A job that nobody sees any more and whose rows are being deleted."""

    job_seq: int
    job_id: str
    output_prefix: str

    @property
    def prefix(self) -> str:
        """Return where the attempts of the job put their outputs."""
        return f"{self.output_prefix}/{self.job_id}"


class KeepingTransaction(Protocol):
    """Operations of retention, quotas and the care of blobs; deletions take a limit each."""

    def closed_jobs(
        self, after: tuple[datetime, int] | None, before: datetime, limit: int
    ) -> list[JobRow]:
        """Return jobs that ended before an instant, earliest first, beyond (ended, seq)."""
        ...

    def retire_job(self, job: JobRow, at: datetime) -> None:
        """Make a job invisible, its idempotency key too; its rows wait for their deletion."""
        ...

    def removal(self, job_id: str) -> Removal | None:
        """Return the removal of a job, also one that is done and not yet forgotten."""
        ...

    def next_removal(self) -> Removal | None:
        """Return the oldest removal that is not done."""
        ...

    def end_removal(self, job_seq: int) -> None:
        """Mark a removal as done."""
        ...

    def forget_removals(self, before: datetime) -> int:
        """Delete the records of removals that were done and begun before an instant."""
        ...

    def delete_tasks(self, job_seq: int, limit: int) -> int:
        """Delete tasks of a job with their payloads; return how many."""
        ...

    def delete_events(self, job_id: str | None, before: datetime | None, limit: int) -> int:
        """Delete a job's oldest events and the leases that they name; return how many events.

        With `job_id` None those about no job; with `before` only those older than that.
        """
        ...

    def add_inputs(self, job_seq: int, keys: Iterable[str]) -> None:
        """Record which objects a job takes as inputs."""
        ...

    def delete_inputs(self, job_seq: int, limit: int) -> list[str]:
        """Forget inputs of a job; return their keys."""
        ...

    def jobs_with_input(self, key: str, limit: int) -> list[str]:
        """Return ids of visible jobs that take an object as input."""
        ...

    def objects_below(self, prefix: str, after: str, limit: int) -> list[ObjectRow]:
        """Return objects whose keys begin with `prefix` and a slash, by key, beyond `after`."""
        ...

    def objects_with(self, sha256: str, limit: int) -> list[ObjectRow]:
        """Return objects that consist of these bytes, by key."""
        ...

    def digests_after(self, sha256: str, limit: int) -> list[tuple[str, int]]:
        """Return digests and sizes of what objects consist of, in order, beyond `sha256`."""
        ...

    def delete_object(self, key: str) -> None:
        """Delete an object that is there."""
        ...

    def stored_bytes(self, job_id: str) -> int:
        """Return the bytes that a job's objects have in all."""
        ...

    def add_stored_bytes(self, job_id: str, size_bytes: int) -> None:
        """Change the bytes that a job's objects have in all."""
        ...

    def put_damage(self, sha256: str, at: datetime, reason: str) -> None:
        """Record that the bytes of a digest are damaged."""
        ...

    def damage(self, sha256: str) -> str | None:
        """Return why the bytes of a digest cannot be used, None if nothing is known."""
        ...

    def heal(self, sha256: str) -> bool:
        """Forget that the bytes of a digest are damaged; return whether they were."""
        ...

    def damaged_digests(self, limit: int) -> list[str]:
        """Return digests whose bytes are damaged."""
        ...

    def mark(self, name: str) -> str | None:
        """Return how far a chore has come."""
        ...

    def put_mark(self, name: str, value: str) -> None:
        """Record how far a chore has come."""
        ...

    def delete_node(self, node_id: str) -> None:
        """Delete a node that is there."""
        ...
