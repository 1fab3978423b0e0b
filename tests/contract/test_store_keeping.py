"""What every ledger store must do for retention, quotas and the care of blobs."""

import re
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from flashruntime.leases.memory import MemoryStore
from flashruntime.leases.record import (
    EventRow,
    JobRow,
    LeaseRow,
    LeaseState,
    NodeRow,
    ObjectRow,
    TaskCounts,
    TaskRow,
)
from flashruntime.leases.sqlite import SqliteStore
from flashruntime.leases.store import LeaseStore, Transaction
from flashruntime.leases.store_keeping import Removal
from flashruntime.protocol.events import EventType
from flashruntime.protocol.jobs import JobState

NOW = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
HOUR = timedelta(hours=1)
SHA = {letter: letter * 64 for letter in "abc"}


@pytest.fixture(params=["memory", "sqlite"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[LeaseStore]:
    made: LeaseStore
    made = MemoryStore() if request.param == "memory" else SqliteStore(tmp_path / "l.sqlite3")
    yield made
    made.close()


def add(tx: Transaction, job_id: str, finished: datetime | None, key: str | None = None) -> JobRow:
    """A job of two tasks, with a lease and two events."""
    job = JobRow(0, job_id, "n", JobState.FAILED, None, NOW, finished, 1, 1, "out", key, "d",
                 TaskCounts(failed=2))  # fmt: skip
    job = tx.add_job(job, "{}")
    tasks = [TaskRow(f"{job_id}-{index}", job_id, job.seq, index) for index in range(2)]
    tx.add_tasks((task, "{}") for task in tasks)
    lease = LeaseRow(f"lease-{job_id}", tasks[0].task_id, job_id, "w1", None, f"c-{job_id}", 1,
                     LeaseState.FAILED, 1, 1, "out")  # fmt: skip
    tx.put_lease(lease)
    tx.append([event(job_id), event(job_id, lease.lease_id)])
    return job


def event(job_id: str | None, lease_id: str | None = None, at: datetime = NOW) -> EventRow:
    return EventRow(0, EventType.JOB_ACCEPTED, job_id, None, lease_id, at, 1, "boot", "{}")


def test_closed_jobs_come_in_the_order_in_which_they_ended(store: LeaseStore) -> None:
    with store.transaction() as tx:
        late = add(tx, "late", NOW + HOUR)
        add(tx, "open", None)
        first = add(tx, "first", NOW)
        second = add(tx, "second", NOW + timedelta(microseconds=1))
        twin = add(tx, "twin", NOW + timedelta(microseconds=1))
    with store.transaction() as tx:
        found = tx.closed_jobs(None, NOW + 2 * HOUR, 9)
        assert [job.job_id for job in found] == ["first", "second", "twin", "late"]
        assert tx.closed_jobs(None, NOW + HOUR, 2) == [first, second]
        assert second.finished_at is not None
        later = tx.closed_jobs((second.finished_at, second.seq), NOW + 2 * HOUR, 9)
        assert later == [twin, late]


def test_a_retired_job_is_gone_at_once_and_its_rows_in_batches(store: LeaseStore) -> None:
    with store.transaction() as tx:
        kept = add(tx, "kept", None)
        job = add(tx, "gone", NOW, "key")
        tx.add_stored_bytes("gone", 5)
        newest = add(tx, "newest", NOW)
    with store.transaction() as tx:
        tx.retire_job(job, NOW)
    with store.transaction() as tx:
        assert (tx.job("gone"), tx.job_by_key("key"), tx.stored_bytes("gone")) == (None, None, 0)
        assert tx.jobs_before(None, 9) == [newest, kept]
        assert tx.jobs_before(newest.seq, 9) == [kept]
        assert tx.next_removal() == tx.removal("gone") == Removal(job.seq, "gone", "out")
        assert [tx.delete_tasks(job.seq, 1) for _ in range(3)] == [1, 1, 0]
        assert [tx.delete_events("gone", None, 1) for _ in range(3)] == [1, 1, 0]
        assert (tx.task("gone-0"), tx.task("gone-1"), tx.lease("lease-gone")) == (None, None, None)
        assert tx.lease_by_claim("w1", "c-gone") is None
        tx.end_removal(job.seq)
        assert tx.next_removal() is None
        assert tx.removal("gone") is not None
        assert tx.forget_removals(NOW) == 0
        assert tx.forget_removals(NOW + HOUR) == 1
        assert tx.removal("gone") is None
    with store.transaction() as tx:
        assert tx.task("kept-0") is not None
        assert tx.lease("lease-kept") is not None
        assert len(tx.events_after("kept", 0, 9)) == 2
        everything = tx.events_after(None, 0, 9)
        assert [row.job_id for row in everything] == ["kept", "kept", "newest", "newest"]
        again = add(tx, "gone", None, "key")
        assert again.seq > newest.seq
        assert tx.events_after("gone", 0, 9)[0].event_id > everything[-1].event_id


def test_a_deletion_that_fails_is_undone(store: LeaseStore) -> None:
    with store.transaction() as tx:
        job = add(tx, "j", NOW, "key")
        tx.put_object(ObjectRow("out/j/x", SHA["a"], 1, True, "j", "j-0", "x"))
        tx.put_node(NodeRow("w1", "s", None, NOW, "{}"))

    def half() -> None:
        with store.transaction() as tx:
            tx.retire_job(job, NOW)
            tx.delete_tasks(job.seq, 9)
            tx.delete_events("j", None, 9)
            tx.delete_object("out/j/x")
            tx.delete_node("w1")
            tx.put_damage(SHA["a"], NOW, "rot")
            raise KeyError

    with pytest.raises(KeyError):
        half()
    with store.transaction() as tx:
        assert tx.job("j") == tx.job_by_key("key") == job
        assert tx.jobs_before(None, 9) == [job]
        assert len(tx.tasks_after(job.seq, -1, 9)) == 2
        assert tx.payload_json("j-0") == "{}"
        assert len(tx.events_after("j", 0, 9)) == len(tx.events_after(None, 0, 9)) == 2
        assert tx.lease_by_claim("w1", "c-j") is not None
        assert [row.key for row in tx.accepted_objects("j")] == ["out/j/x"]
        assert tx.key_below("out") == "out/j/x"
        assert tx.node("w1") is not None
        assert (tx.damaged_digests(9), tx.next_removal()) == ([], None)


def test_events_about_no_job_go_by_age(store: LeaseStore) -> None:
    with store.transaction() as tx:
        tx.append([event(None), event("j"), event(None, at=NOW + HOUR)])
    with store.transaction() as tx:
        assert tx.delete_events(None, NOW + HOUR, 9) == 1
        assert [row.at for row in tx.events_after(None, 0, 9)] == [NOW, NOW + HOUR]


def test_objects_are_found_below_a_prefix_and_by_digest(store: LeaseStore) -> None:
    rows = [
        ObjectRow("out/j/a", SHA["a"], 1),
        ObjectRow("out/j/b", SHA["b"], 2, True, "j", "t", "b"),
        ObjectRow("out/jj/c", SHA["a"], 1),
        ObjectRow("out/j-x", SHA["c"], 3),
    ]
    with store.transaction() as tx:
        for row in rows:
            tx.put_object(row)
    with store.transaction() as tx:
        assert tx.objects_below("out/j", "", 9) == rows[:2]
        assert tx.objects_below("out/j", "", 1) == rows[:1]
        assert tx.objects_below("out/j", "out/j/a", 9) == rows[1:2]
        assert tx.objects_with(SHA["a"], 9) == [rows[0], rows[2]]
        assert tx.digests_after("", 9) == [(SHA["a"], 1), (SHA["b"], 2), (SHA["c"], 3)]
        assert tx.digests_after(SHA["a"], 1) == [(SHA["b"], 2)]
        tx.delete_object("out/j/b")
        assert tx.object("out/j/b") is None
        assert tx.accepted_objects("j") == []


def test_inputs_are_known_by_key_while_their_jobs_are_seen(store: LeaseStore) -> None:
    with store.transaction() as tx:
        first, second = add(tx, "j1", NOW), add(tx, "j2", None)
        tx.add_inputs(first.seq, ["a", "b", "a"])
        tx.add_inputs(second.seq, ["a"])
    with store.transaction() as tx:
        assert tx.jobs_with_input("a", 9) == ["j1", "j2"]
        tx.retire_job(first, NOW)
        assert (tx.jobs_with_input("a", 9), tx.jobs_with_input("b", 9)) == (["j2"], [])
        assert sorted(tx.delete_inputs(first.seq, 9)) == ["a", "b"]
        assert tx.delete_inputs(first.seq, 9) == []


def test_bytes_marks_and_damage_are_remembered(store: LeaseStore) -> None:
    with store.transaction() as tx:
        for size_bytes in (5, -2):
            tx.add_stored_bytes("j", size_bytes)
        tx.put_mark("m", "1")
        tx.put_mark("m", "2")
        tx.put_damage(SHA["a"], NOW, "rot")
        tx.put_damage(SHA["a"], NOW, "gone")
    with store.transaction() as tx:
        assert (tx.stored_bytes("j"), tx.stored_bytes("k")) == (3, 0)
        assert (tx.mark("m"), tx.mark("n")) == ("2", None)
        assert (tx.damage(SHA["a"]), tx.damage(SHA["b"])) == ("gone", None)
        assert tx.damaged_digests(9) == [SHA["a"]]
        assert [tx.heal(SHA["a"]) for _ in range(2)] == [True, False]
        assert tx.damaged_digests(9) == []


def test_no_chore_walks_a_table(tmp_path: Path) -> None:
    """What retention and the care of blobs cost must not grow with the history."""
    store = SqliteStore(tmp_path / "l.sqlite3")
    with store.transaction() as tx:
        job = add(tx, "j", NOW)
        tx.put_object(ObjectRow("out/j/a", SHA["a"], 1))
    seen: list[str] = []
    store._db.set_trace_callback(seen.append)
    with store.transaction() as tx:
        tx.closed_jobs((NOW - HOUR, 1), NOW + HOUR, 9)
        tx.retire_job(replace(job), NOW)
        tx.removal("j")
        tx.next_removal()
        tx.add_inputs(job.seq, ["a"])
        tx.jobs_with_input("a", 1)
        tx.delete_inputs(job.seq, 9)
        tx.delete_events("j", None, 9)
        tx.delete_events(None, NOW, 9)
        tx.delete_tasks(job.seq, 9)
        tx.objects_below("out/j", "", 9)
        tx.objects_with(SHA["a"], 9)
        tx.digests_after("", 9)
        tx.delete_object("out/j/a")
        tx.end_removal(job.seq)
        tx.forget_removals(NOW)
    store._db.set_trace_callback(None)
    statements = [sql for sql in seen if re.match(r"\s*(SELECT|UPDATE|DELETE)", sql)]
    assert len(statements) > 15
    for sql in statements:
        for *_, plan in store._db.execute(f"EXPLAIN QUERY PLAN {sql}"):
            assert "INDEX" in plan or "PRIMARY KEY" in plan, (sql, plan)
            assert "TEMP B-TREE" not in plan, (sql, plan)
    store.close()
