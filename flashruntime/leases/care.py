"""The care of stored bytes: what refers to them, and whom their damage concerns."""

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass

from pydantic import JsonValue

from flashruntime.errors import NotFound
from flashruntime.leases.objects import ObjectIndex, find_owner
from flashruntime.leases.record import EventDraft
from flashruntime.leases.store import Transaction
from flashruntime.protocol.events import EventType

MAX_NAMED = 100
MAX_DAMAGES = 10_000


@dataclass(frozen=True, slots=True)
class Concern:
    """Something that is of no use without certain bytes; `job_id` None: an upload of nobody's."""

    key: str
    job_id: str | None
    task_id: str | None


@dataclass(frozen=True, slots=True)
class Holder:
    """A kind of reference to bytes: whether there is one to a digest, what it is about, and which.

    `expected` returns a page of digests and sizes that must be there, in order, beyond a digest.
    """

    refers: Callable[[Transaction, str], bool]
    concerns: Callable[[Transaction, str], list[Concern]]
    expected: Callable[[Transaction, str, int], list[tuple[str, int]]]


def _objects_refer(tx: Transaction, sha256: str) -> bool:
    return bool(tx.objects_with(sha256, 1))


def _drop_unused_input(tx: Transaction, sha256: str) -> None:
    """Delete what `flashruntime submit` uploaded for jobs that are all gone."""
    key = f"inputs/{sha256}"
    row = tx.object(key)
    if row is None or row.accepted or row.sha256 != sha256 or tx.jobs_with_input(key, 1):
        return
    tx.delete_object(key)


def _objects_concerned(tx: Transaction, sha256: str) -> list[Concern]:
    found: list[Concern] = []
    for row in tx.objects_with(sha256, MAX_NAMED):
        job_id, task_id = row.job_id, row.task_id
        if job_id is None:
            with suppress(NotFound):
                owner = find_owner(tx, row.key)
                if owner is not None:
                    job_id, task_id = owner.job_id, owner.task_id
        jobs = [job_id] if job_id is not None else tx.jobs_with_input(row.key, MAX_NAMED)
        found += [Concern(row.key, each, task_id) for each in jobs]
        if not jobs:
            found.append(Concern(row.key, None, None))
    return found


def _objects_expected(tx: Transaction, after: str, limit: int) -> list[tuple[str, int]]:
    return tx.digests_after(after, limit)


def _parts_refer(tx: Transaction, sha256: str) -> bool:
    return tx.is_referenced(sha256)


def _parts_concerned(tx: Transaction, sha256: str) -> list[Concern]:
    found = (tx.task(task_id) for task_id in tx.tasks_with_part(sha256, MAX_NAMED))
    return [
        Concern(f"{task.task_id}/checkpoints/{sha256}", task.job_id, task.task_id)
        for task in found
        if task is not None
    ]


def _parts_expected(tx: Transaction, after: str, limit: int) -> list[tuple[str, int]]:
    return tx.committed_parts(after, limit)


HOLDERS: tuple[Holder, ...] = (
    Holder(_objects_refer, _objects_concerned, _objects_expected),
    Holder(_parts_refer, _parts_concerned, _parts_expected),
)


class BlobCare(ObjectIndex):
    """Knows which bytes are needed, and remembers which are damaged."""

    def unreferenced(self, digests: Sequence[str], *, drop_inputs: bool = False) -> list[str]:
        """Return those digests that nothing refers to.

        With `drop_inputs`, what `flashruntime submit` uploaded for jobs that are gone goes first.
        """
        if drop_inputs:
            with self._store.transaction() as tx:
                for sha256 in digests:
                    _drop_unused_input(tx, sha256)
        with self._store.transaction() as tx:
            return [each for each in digests if not _referred(tx, each)]

    def expected(self, after: str, limit: int) -> list[tuple[str, int]]:
        """Return digests and sizes that must be in the store, in order, beyond `after`."""
        with self._store.transaction() as tx:
            found = [each for holder in HOLDERS for each in holder.expected(tx, after, limit)]
        return sorted(dict(found).items())[:limit]

    def note_damage(self, sha256: str, reason: str) -> list[Concern]:
        """Record that bytes are damaged, once, with an event for each job that they concern.

        Returns what they concern; nothing if that is known already or nobody needs them.
        """
        self.damage_possible = True
        with self._store.transaction() as tx:
            concerns = [found for holder in HOLDERS for found in holder.concerns(tx, sha256)]
            if not concerns or tx.damage(sha256) is not None:
                return []
            tx.put_damage(sha256, self._clock.utc_now(), reason)
            self._append(tx, damage_events(EventType.ARTIFACT_CORRUPT, sha256, concerns, reason))
        return concerns

    def forget_damage(self, sha256: str) -> None:
        """Note that bytes are whole after all."""
        with self._store.transaction() as tx:
            tx.heal(sha256)

    def mark(self, name: str) -> str | None:
        """Return how far a chore has come, as `set_mark` recorded it."""
        with self._store.transaction() as tx:
            return tx.mark(name)

    def set_mark(self, name: str, value: str) -> None:
        """Record how far a chore has come."""
        with self._store.transaction() as tx:
            tx.put_mark(name, value)

    def damages(self) -> list[str]:
        """Return the digests of damaged bytes; those that nobody needs any more are forgotten."""
        with self._store.transaction() as tx:
            found = tx.damaged_digests(MAX_DAMAGES)
            gone = [sha256 for sha256 in found if not _referred(tx, sha256)]
            for sha256 in gone:
                tx.heal(sha256)
        self.damage_possible = bool(found)
        return sorted(set(found) - set(gone))


def _referred(tx: Transaction, sha256: str) -> bool:
    return any(holder.refers(tx, sha256) for holder in HOLDERS)


def damage_events(
    kind: EventType, sha256: str, concerns: Sequence[Concern], reason: str
) -> list[EventDraft]:
    """Return an event for each thing that damaged or restored bytes concern."""
    drafts = []
    for each in concerns:
        data: dict[str, JsonValue] = {"key": each.key, "sha256": sha256, "reason": reason}
        drafts.append(EventDraft(kind, each.job_id, each.task_id, None, data))
    return drafts
