"""Both stores agree over groups of transactions of which some fail, and a file read anew does."""

from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from itertools import count
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flashruntime.leases.memory import MemoryStore
from flashruntime.leases.record import (
    ClaimQuery,
    JobRow,
    LeaseRow,
    LeaseState,
    ObjectRow,
    TaskCounts,
    TaskRow,
)
from flashruntime.leases.sqlite import SqliteStore
from flashruntime.leases.store import LeaseStore, Transaction
from flashruntime.protocol.jobs import JobState
from flashruntime.protocol.tasks import TaskState

NOW = datetime(2026, 1, 1, tzinfo=UTC)
NAMES = ("a", "b", "c")
Change = Callable[[Transaction], None]


class Undone(Exception):
    """Ends a transaction or a group."""


def job(tx: Transaction, name: str) -> None:
    if tx.job(name) is None:
        counts = TaskCounts(pending=1)
        row = JobRow(0, name, name, JobState.PENDING, None, NOW, None, 5, 1, "o", None, "d", counts)
        added = tx.add_job(row, "{}")
        tx.add_tasks([(TaskRow(f"{name}-0", name, added.seq, 0), "{}")])


def run(tx: Transaction, name: str) -> None:
    found = tx.job(name)
    if found is not None:
        tx.put_job(replace(found, state=JobState.RUNNING, reason=f"{found.reason}+"))


def claim(tx: Transaction, name: str) -> None:
    task = tx.next_claimable(ClaimQuery("n", 1_000, None, others_live=False, patience_ns=0))
    if task is None or tx.lease(f"l-{name}") is not None:
        return
    held = LeaseRow(
        lease_id=f"l-{name}",
        task_id=task.task_id,
        job_id=task.job_id,
        node_id="n",
        session_id=None,
        claim_id=name,
        attempt_number=1,
        state=LeaseState.LIVE,
        lease_ns=5,
        deadline_ns=9,
        output_prefix="o",
    )
    tx.put_lease(held)
    tx.put_task(replace(task, state=TaskState.LEASED, holder=held.lease_id, attempts=9))


def renew(tx: Transaction, name: str) -> None:
    found = tx.lease(f"l-{name}")
    if found is not None:
        tx.put_lease(replace(found, deadline_ns=found.deadline_ns + 7, step=3))


def requeue(tx: Transaction, name: str) -> None:
    found = tx.task(f"{name}-0")
    if found is not None:
        tx.put_task(replace(found, state=TaskState.PENDING, not_before_ns=50, backoff_ns=5))


def cancel(tx: Transaction, name: str) -> None:
    found = tx.job(name)
    if found is not None:
        tx.cancel_open(found.seq)


def rearm(tx: Transaction, _name: str) -> None:
    tx.rearm(77)


def spool(tx: Transaction, name: str) -> None:
    tx.spool(name, name.encode())
    tx.put_object(ObjectRow(name, name, 1))


def unspool(tx: Transaction, _name: str) -> None:
    for first in tx.spooled(0, 1):
        tx.unspool(first.number)


CHANGES = (job, run, claim, renew, requeue, cancel, rearm, spool, unspool)
Calls = st.tuples(
    st.lists(st.tuples(st.sampled_from(CHANGES), st.sampled_from(NAMES)), min_size=1, max_size=4),
    st.booleans(),
)
Groups = st.lists(st.tuples(st.lists(Calls, min_size=1, max_size=4), st.booleans()), max_size=6)


def everything(store: LeaseStore) -> tuple[object, ...]:
    with store.transaction() as tx:
        return (
            [tx.job(name) for name in NAMES],
            tx.jobs_before(None, 9),
            [tx.task(f"{name}-0") for name in NAMES],
            [tx.tasks_after(seq, -1, 9) for seq in (1, 2, 3)],
            [tx.lease(f"l-{name}") for name in NAMES],
            [tx.lease_by_claim("n", name) for name in NAMES],
            tx.expired_leases(10**9, 9),
            tx.next_due_ns(0),
            [tx.object(name) for name in NAMES],
            [(row.sha256, tx.spooled_bytes(row.number)) for row in tx.spooled(0, 9)],
        )


def play(store: LeaseStore, calls: list[tuple[list[tuple[Change, str]], bool]], kept: bool) -> None:
    with store.group():
        for changes, succeeds in calls:
            try:
                with store.transaction() as tx:
                    for change, name in changes:
                        change(tx, name)  # type: ignore[call-arg]
                    if not succeeds:
                        raise Undone
            except Undone:
                continue
        if not kept:
            raise Undone


@pytest.mark.parametrize("examples", [10, pytest.param(500, marks=pytest.mark.bench_stress)])
def test_both_stores_agree_over_groups(tmp_path: Path, examples: int) -> None:
    numbers = count()

    @settings(max_examples=examples, deadline=None, database=None)
    @given(Groups)
    def agree(groups: list[tuple[list[tuple[list[tuple[Change, str]], bool]], bool]]) -> None:
        path = tmp_path / str(next(numbers)) / "l.sqlite3"
        memory, sqlite = MemoryStore(), SqliteStore(path)
        for calls, kept in groups:
            for store in (memory, sqlite):
                if kept:
                    play(store, calls, kept)
                else:
                    with pytest.raises(Undone):
                        play(store, calls, kept)
            assert everything(sqlite) == everything(memory)
        sqlite.close()
        again = SqliteStore(path)
        assert everything(again) == everything(memory)
        again.close()

    agree()
