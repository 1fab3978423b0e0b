"""What every ledger store must do with checkpoints, below the semantics of the catalogue."""

from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest

from flashruntime.leases.checkpoint_tables import CheckpointRow, SuccessionRow
from flashruntime.leases.memory import MemoryStore
from flashruntime.leases.sqlite import SqliteStore
from flashruntime.leases.store import LeaseStore, Transaction
from flashruntime.protocol.checkpoints import PartSize

TASK = "job-1-00000"
A, B, C = (PartSize(sha256=letter * 64, size_bytes=n) for n, letter in enumerate("abc", 1))


@pytest.fixture(params=["memory", "sqlite"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[LeaseStore]:
    made: LeaseStore
    made = MemoryStore() if request.param == "memory" else SqliteStore(tmp_path / "l.sqlite3")
    yield made
    made.close()


def row(name: str, step: int, task_id: str = TASK) -> CheckpointRow:
    return CheckpointRow(
        task_id=task_id,
        manifest_id=name,
        job_id=task_id.rpartition("-")[0],
        lease_id="lease-1",
        attempt_number=1,
        step=step,
        size_bytes=2**53,
        parts=2,
        digest="d" * 64,
        committed_at=datetime(2026, 1, 2, 3, 4, 5, 678901, tzinfo=UTC),
    )


def fill(tx: Transaction) -> None:
    tx.add_checkpoint(row("x", 10), '{"x": 1}', [A, B])
    tx.add_checkpoint(row("y", 20), '{"y": 1}', [A, C])
    tx.add_checkpoint(row("z", 10), '{"z": 1}', [A, A])
    tx.add_succession(SuccessionRow(TASK, 2, "lease-2", 10, "x"))
    tx.add_succession(SuccessionRow(TASK, 1, "lease-1", None, None))
    tx.add_succession(SuccessionRow(TASK, 2, "lease-9", None, None))


def seen(tx: Transaction) -> tuple[object, ...]:
    return (
        tx.checkpoints(TASK),
        tx.successions(TASK),
        tx.referenced_parts("", 10),
        tx.part_size(TASK, B.sha256, "lease-1"),
        [tx.manifest_json(TASK, found.manifest_id) for found in tx.checkpoints(TASK)],
    )


def test_checkpoints_come_back_by_step_and_then_by_commit(store: LeaseStore) -> None:
    with store.transaction() as tx:
        fill(tx)
    with store.transaction() as tx:
        found = tx.checkpoints(TASK)
        assert [each.manifest_id for each in found] == ["y", "z", "x"]
        first = tx.checkpoint(TASK, "x")
        assert first == found[2]
        assert (first.size_bytes, first.committed_at) == (2**53, row("x", 1).committed_at)
        assert tx.manifest_json(TASK, "z") == '{"z": 1}'
        assert tx.checkpoint(TASK, "no") is None
        assert [s.lease_id for s in tx.successions(TASK)] == ["lease-1", "lease-2"]
        assert tx.checkpoints("job-1-00001") == []


def test_a_part_is_needed_as_long_as_anything_names_it(store: LeaseStore) -> None:
    with store.transaction() as tx:
        fill(tx)
        assert tx.referenced_parts("", 2) == [A.sha256, B.sha256]
        assert tx.referenced_parts(B.sha256, 2) == [C.sha256]
        assert tx.remove_checkpoint(TASK, "y") == [A.sha256, C.sha256]
        assert tx.tasks_with_part(A.sha256, 5) == [TASK]
        assert not tx.is_referenced(C.sha256)
        tx.set_checkpoint_aside(TASK, "x", "no use")
        assert tx.is_referenced(A.sha256)
        tx.remove_checkpoint(TASK, "z")
        assert tx.referenced_parts("", 10) == []
        left = tx.checkpoint(TASK, "x")
        assert left is not None
        assert left.set_aside == "no use"


def test_an_announcement_takes_the_place_of_the_one_before(store: LeaseStore) -> None:
    with store.transaction() as tx:
        tx.add_checkpoint(row("x", 10), "{}", [A])
        tx.reserve_parts(TASK, "lease-1", [A, B, B])
        tx.reserve_parts("job-1-00001", "lease-7", [C])
        assert tx.part_size(TASK, B.sha256, "lease-1") == B.size_bytes
        assert tx.part_size(TASK, B.sha256, None) is None
        assert tx.part_size(TASK, A.sha256, None) == A.size_bytes
        assert tx.part_size(TASK, B.sha256, "lease-2") is None
        tx.reserve_parts(TASK, "lease-2", [A])
        assert not tx.is_referenced(B.sha256)
        assert tx.release_ended() == 2, "there are no such tasks"
        assert tx.referenced_parts("", 10) == [A.sha256]
        tx.reserve_parts(TASK, "lease-2", [B])
        assert tx.committed_parts("", 10) == [(A.sha256, A.size_bytes)]
        assert tx.committed_parts(A.sha256, 10) == []


def test_one_job_is_forgotten_and_its_namesakes_are_not(store: LeaseStore) -> None:
    with store.transaction() as tx:
        fill(tx)
        tx.add_checkpoint(row("other", 10, "job-10-00000"), "{}", [B])
        tx.reserve_parts(TASK, "lease-1", [C])
        freed = []
        while (some := tx.forget_checkpoints("job-1", 2)) is not None:
            freed += some
        assert set(freed) == {A.sha256, B.sha256, C.sha256}
        assert seen(tx)[:2] == ([], [])
        assert tx.referenced_parts("", 10) == [B.sha256]


def test_a_failed_transaction_leaves_no_trace_of_checkpoints(store: LeaseStore) -> None:
    with store.transaction() as tx:
        fill(tx)
        tx.reserve_parts(TASK, "lease-1", [B])
        before = seen(tx)

    def change(tx: Transaction) -> None:
        tx.set_checkpoint_aside(TASK, "y", "no use")
        tx.remove_checkpoint(TASK, "x")
        tx.add_checkpoint(row("w", 30), "{}", [C])
        tx.add_succession(SuccessionRow(TASK, 3, "lease-3", 20, "y"))
        tx.release_parts(TASK)
        for _ in range(9):
            tx.forget_checkpoints("job-1", 9)
        raise KeyError

    with pytest.raises(KeyError), store.transaction() as tx:
        change(tx)
    with store.transaction() as tx:
        assert seen(tx) == before
