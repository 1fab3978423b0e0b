"""What every ledger store must do, below the semantics of leases."""

from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest

from flashruntime.leases.memory import MemoryStore
from flashruntime.leases.record import (
    ClaimQuery,
    EventRow,
    JobRow,
    LeaseRow,
    LeaseState,
    NodeRow,
    ObjectRow,
    TaskCounts,
    TaskResult,
    TaskRow,
)
from flashruntime.leases.sqlite import SqliteStore
from flashruntime.leases.store import LeaseStore, Transaction
from flashruntime.protocol.events import EventType
from flashruntime.protocol.failures import Decision, FailureClass, RecoveryAction
from flashruntime.protocol.jobs import JobState
from flashruntime.protocol.tasks import OutputFile, TaskState

NOW = datetime(2026, 1, 2, 3, 4, 5, 678901, tzinfo=UTC)
BIG = 2**53


@pytest.fixture(params=["memory", "sqlite"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[LeaseStore]:
    made: LeaseStore
    made = MemoryStore() if request.param == "memory" else SqliteStore(tmp_path / "l.sqlite3")
    yield made
    made.close()


def job(job_id: str = "job-1", tasks: int = 0, key: str | None = None) -> JobRow:
    return JobRow(
        seq=0,
        job_id=job_id,
        name="naïve \u2603 \x00",
        state=JobState.PENDING,
        reason=None,
        created_at=NOW,
        finished_at=None,
        lease_ns=10**9,
        max_errors=3,
        output_prefix="outputs",
        idempotency_key=key,
        request_digest="d",
        counts=TaskCounts(pending=tasks),
    )


def add(tx: Transaction, job_id: str = "job-1", tasks: int = 1) -> tuple[JobRow, list[TaskRow]]:
    added = tx.add_job(job(job_id, tasks), "{}")
    rows = [TaskRow(f"{job_id}-{i}", job_id, added.seq, i) for i in range(tasks)]
    tx.add_tasks((row, f'{{"number":{row.index}}}') for row in rows)
    return added, rows


def lease(lease_id: str, task: TaskRow, **more: object) -> LeaseRow:
    row = LeaseRow(
        lease_id=lease_id,
        task_id=task.task_id,
        job_id=task.job_id,
        node_id="w1",
        session_id=None,
        claim_id=None,
        attempt_number=1,
        state=LeaseState.LIVE,
        lease_ns=100,
        deadline_ns=1_000,
        output_prefix="outputs/x",
    )
    return replace(row, **more)  # type: ignore[arg-type]


def query(now_ns: int = 0, **more: object) -> ClaimQuery:
    base = ClaimQuery("w1", now_ns, None, others_live=False, patience_ns=0)
    return replace(base, **more)  # type: ignore[arg-type]


def event(job_id: str | None, text: str = "{}") -> EventRow:
    return EventRow(0, EventType.JOB_ACCEPTED, job_id, None, None, NOW, BIG, "boot", text)


def test_rows_come_back_as_they_were_put(store: LeaseStore) -> None:
    decision = Decision(
        failure_class=FailureClass.UNKNOWN,
        action=RecoveryAction.RETRY_TASK,
        counts_as_error=True,
        backoff_s=0.1,
        reason="é\n",
        policy_version="1",
    )
    with store.transaction() as tx:
        added, (task,) = add(tx)
        done = replace(
            task,
            state=TaskState.COMPLETED,
            lease_id="l",
            holder="l",
            attempts=BIG,
            best_step=BIG,
            not_before_ns=BIG,
            avoid_node="w",
            last_failure="f|1",
            reason="\u2028",
            result=TaskResult((OutputFile(path="p", key="k", sha256="a" * 64),), "{}", 10**40),
        )
        tx.put_task(done)
        ended = replace(
            added, state=JobState.FAILED, reason="r", finished_at=NOW, counts=TaskCounts(0, 1, 2, 3)
        )
        tx.put_job(ended)
        closed = lease(
            "l", task, step=BIG, metrics_json="{}", refused=("a", "b"), decision=decision
        )
        tx.put_lease(closed)
        accepted = ObjectRow("k", "a" * 64, 0, True, "job-1", "t", "p")
        tx.put_object(accepted)
        node = NodeRow("w1", "s", None, NOW, "{}")
        tx.put_node(node)
        tx.append([event("job-1", '{"a":1}')])
    with store.transaction() as tx:
        assert tx.task(task.task_id) == done
        assert tx.job("job-1") == ended
        assert tx.lease("l") == closed
        assert tx.object("k") == accepted
        assert tx.accepted_objects("job-1") == [accepted]
        assert (tx.node("w1"), tx.nodes()) == (node, [node])
        assert tx.spec_json("job-1") == "{}"
        assert tx.payload_json(task.task_id) == '{"number":0}'
        assert [row.data_json for row in tx.events_after(None, 0, 9)] == ['{"a":1}']


def test_what_is_not_there_is_none(store: LeaseStore) -> None:
    with store.transaction() as tx:
        found = (
            tx.job("x"),
            tx.job_by_key("x"),
            tx.task("x"),
            tx.lease("x"),
            tx.lease_by_claim("x", "x"),
            tx.object("x"),
            tx.key_below("x"),
            tx.node("x"),
            tx.next_claimable(query()),
            tx.next_due_ns(0),
        )
    assert set(found) == {None}


def test_a_failed_transaction_leaves_no_trace(store: LeaseStore) -> None:
    with store.transaction() as tx:
        _, (task,) = add(tx)
        tx.put_lease(lease("l-1", task, claim_id="c"))
        tx.put_object(ObjectRow("k", "a", 1))
    with store.transaction() as tx:
        before = _everything(tx)

    def change_all(tx: Transaction) -> None:
        tx.add_job(job("job-2", key="key"), "{}")
        tx.put_task(replace(task, state=TaskState.LEASED, not_before_ns=5))
        tx.put_lease(lease("l-1", task, claim_id="c", state=LeaseState.LAPSED))
        tx.put_lease(lease("l-2", task, claim_id="d", node_id="w2"))
        tx.put_object(ObjectRow("k", "b", 1, True, "job-1"))
        tx.put_object(ObjectRow("m/n", "b", 1))
        tx.put_node(NodeRow("w1", "s", None, NOW, "{}"))
        tx.append([event("job-1"), event(None)])
        tx.cancel_open(1)
        tx.rearm(10**6)
        raise OSError("after all changes")

    for _ in range(2):
        with pytest.raises(OSError, match="after all"), store.transaction() as tx:
            change_all(tx)
    with store.transaction() as tx:
        assert _everything(tx) == before
        assert tx.add_job(job("job-2", key="key"), "{}").seq == 2


def _everything(tx: Transaction) -> tuple[object, ...]:
    return (
        tx.jobs_before(None, 9),
        tx.tasks_after(1, -1, 9),
        tx.next_claimable(query(10**9)),
        tx.lease("l-1"),
        tx.lease("l-2"),
        tx.lease_by_claim("w1", "c"),
        tx.lease_by_claim("w2", "d"),
        tx.live_leases("w1"),
        tx.live_leases("w2"),
        tx.expired_leases(10**12, 9),
        tx.next_due_ns(0),
        tx.object("k"),
        tx.key_below("m"),
        tx.accepted_objects("job-1"),
        tx.nodes(),
        tx.events_after(None, 0, 9),
        tx.job_by_key("key"),
    )


def test_transactions_do_not_nest(store: LeaseStore) -> None:
    with store.transaction(), pytest.raises(RuntimeError, match="nest"), store.transaction():
        pass


def test_a_group_keeps_what_succeeds_and_undoes_each_failure_alone(store: LeaseStore) -> None:
    with store.group():
        with store.transaction() as tx:
            _, (task,) = add(tx)
            tx.put_object(ObjectRow("k", "a", 1))
        for text in ("first", "second"):
            with pytest.raises(OSError, match=text):
                _fail(store, task, text)
        with store.transaction() as tx:
            seen = tx.object("k"), tx.task(task.task_id)
            tx.append([event("job-1", '"last"')])
    with store.transaction() as tx:
        kept = tx.object("k"), tx.task(task.task_id)
        assert kept == seen == (ObjectRow("k", "a", 1), task)
        assert [row.data_json for row in tx.events_after(None, 0, 9)] == ['"last"']


def _fail(store: LeaseStore, task: TaskRow, text: str) -> None:
    with store.transaction() as tx:
        tx.put_object(ObjectRow("k", text, 1))
        tx.put_task(replace(task, state=TaskState.LEASED))
        tx.append([event(None)])
        raise OSError(text)


def test_transactions_of_a_group_see_one_another_in_order(store: LeaseStore) -> None:
    order = []
    with store.group():
        for name in ("a", "b", "c"):
            with store.transaction() as tx:
                before = tx.object("k")
                order.append(before and before.sha256)
                tx.put_object(ObjectRow("k", name, 1))
    assert order == [None, "a", "b"]


def test_a_group_that_cannot_be_kept_leaves_no_trace(store: LeaseStore) -> None:
    with store.transaction() as tx:
        _, (task,) = add(tx)
        tx.put_lease(lease("l-1", task, claim_id="c"))
        before = _everything(tx)
    for _ in range(2):
        with pytest.raises(OSError, match="group"):
            _lose_group(store, task)
        with store.transaction() as tx:
            assert _everything(tx) == before


def _lose_group(store: LeaseStore, task: TaskRow) -> None:
    with store.group():
        with store.transaction() as tx:
            tx.add_job(job("job-2", key="key"), "{}")
            tx.put_lease(lease("l-2", task, claim_id="d", node_id="w2"))
        with store.transaction() as tx:
            tx.put_lease(lease("l-1", task, claim_id="c", state=LeaseState.LAPSED))
            tx.cancel_open(1)
        raise OSError("group")


def test_groups_and_transactions_do_not_nest(store: LeaseStore) -> None:
    with store.group(), pytest.raises(RuntimeError, match="nest"), store.group():
        pass
    with store.transaction(), pytest.raises(RuntimeError, match="nest"), store.group():
        pass
    with (
        store.group(),
        store.transaction(),
        pytest.raises(RuntimeError, match="nest"),
        store.transaction(),
    ):
        pass
    with store.transaction() as tx:
        assert tx.nodes() == []


def test_tasks_are_claimable_in_the_order_of_jobs_and_indexes(store: LeaseStore) -> None:
    order = []
    with store.transaction() as tx:
        add(tx, "job-b", 2)
        add(tx, "job-a", 1)
        while (task := tx.next_claimable(query())) is not None:
            order.append(task.task_id)
            tx.put_task(replace(task, state=TaskState.LEASED))
    assert order == ["job-b-0", "job-b-1", "job-a-0"]


def test_only_tasks_with_a_need_that_is_named_are_given(store: LeaseStore) -> None:
    with store.transaction() as tx:
        assert tx.queued_needs() == []
        for job_id, need in (("a", "x"), ("b", ""), ("c", "y"), ("d", "x")):
            added = tx.add_job(replace(job(job_id), need=need), "{}")
            tx.add_tasks([(TaskRow(f"{job_id}-0", job_id, added.seq, 0, need=need), "{}")])
        waiting = tx.task("c-0")
        assert waiting is not None
        tx.put_task(replace(waiting, not_before_ns=5))
        assert tx.queued_needs() == ["", "x", "y"]
        found = [
            task and task.task_id
            for task in (
                tx.next_claimable(query(needs=("x",))),
                tx.next_claimable(query(needs=("", "x"))),
                tx.next_claimable(query()),
                tx.next_claimable(query(9, needs=("y", "x", ""))),
                tx.next_claimable(query(9, needs=())),
                tx.next_claimable(query(needs=("x",), job_seq=4)),
            )
        ]
        assert found == ["a-0", "a-0", "b-0", "c-0", None, "d-0"]
        kept = tx.job("a")
        assert kept is not None
        assert kept.need == "x"


def test_live_leases_are_counted_by_node(store: LeaseStore) -> None:
    with store.transaction() as tx:
        _, tasks = add(tx, tasks=3)
        for number, task in enumerate(tasks):
            tx.put_lease(lease(f"l-{number}", task, node_id=f"w{min(number, 1)}"))
        tx.put_lease(lease("l-2", tasks[2], node_id="w1", state=LeaseState.LAPSED))
        assert tx.live_counts(None) == {"w0": 1, "w1": 1}
        assert tx.live_counts("w1") == {"w1": 1}
        assert not tx.live_counts("nobody").get("nobody")


def test_a_waiting_task_is_due_after_its_wait_and_then_first(store: LeaseStore) -> None:
    with store.transaction() as tx:
        job_row, tasks = add(tx, tasks=3)
        tx.put_task(replace(tasks[2], not_before_ns=50))
        tx.put_task(replace(tasks[1], not_before_ns=60))
        found = [
            task and task.index
            for task in (
                tx.next_claimable(query(49)),
                tx.next_claimable(query(50)),
                tx.next_claimable(query(60)),
                tx.next_claimable(query(49, job_seq=job_row.seq)),
                tx.next_claimable(query(50, job_seq=job_row.seq)),
            )
        ]
        assert found == [0, 2, 2, 0, 2]
        assert tx.next_claimable(query(99, job_seq=job_row.seq + 1)) is None


def test_a_node_is_spared_what_it_failed_while_others_live(store: LeaseStore) -> None:
    with store.transaction() as tx:
        _, (task,) = add(tx)
        tx.put_task(replace(task, not_before_ns=50, avoid_node="w1"))
        spare = query(55, others_live=True, patience_ns=10)
        assert tx.next_claimable(spare) is None
        assert tx.next_claimable(replace(spare, node_id="w2")) is not None
        assert tx.next_claimable(replace(spare, others_live=False)) is not None
        assert tx.next_claimable(replace(spare, now_ns=60)) is not None


def test_expired_leases_come_earliest_first_and_only_live_ones(store: LeaseStore) -> None:
    with store.transaction() as tx:
        _, (task,) = add(tx)
        for number, deadline in enumerate((30, 10, 20, 40)):
            tx.put_lease(lease(f"l-{number}", task, deadline_ns=deadline))
        tx.put_lease(lease("l-2", task, deadline_ns=20, state=LeaseState.LAPSED))
        assert [row.lease_id for row in tx.expired_leases(40, 9)] == ["l-1", "l-0"]
        assert [row.lease_id for row in tx.expired_leases(40, 1)] == ["l-1"]
        assert len(tx.live_leases("w1")) == 3
        assert tx.next_due_ns(0) == 10


def test_rearming_gives_full_time_to_leases_and_waits(store: LeaseStore) -> None:
    with store.transaction() as tx:
        _, tasks = add(tx, tasks=2)
        tx.put_lease(lease("l-1", tasks[0], lease_ns=7, deadline_ns=1))
        tx.put_lease(lease("l-2", tasks[0], state=LeaseState.LAPSED, deadline_ns=1))
        tx.put_task(replace(tasks[1], not_before_ns=10**15, backoff_ns=3))
        assert tx.rearm(1_000) == 1
        found = tx.lease("l-1"), tx.lease("l-2"), tx.task(tasks[1].task_id)
        assert found[0] is not None
        assert found[0].deadline_ns == 1_007
        assert found[1] is not None
        assert found[1].deadline_ns == 1
        assert found[2] is not None
        assert found[2].not_before_ns == 1_003
        assert tx.next_due_ns(0) == 1_003
        assert tx.next_due_ns(1_003) == 1_007


def test_cancelling_touches_open_tasks_of_one_job_and_their_leases(store: LeaseStore) -> None:
    with store.transaction() as tx:
        job_row, tasks = add(tx, tasks=3)
        _, (other,) = add(tx, "job-2")
        tx.put_lease(lease("l-0", tasks[0]))
        tx.put_lease(lease("l-1", tasks[1], state=LeaseState.COMPLETED))
        tx.put_task(replace(tasks[0], state=TaskState.LEASED, holder="l-0", lease_id="l-0"))
        tx.put_task(replace(tasks[1], state=TaskState.COMPLETED, holder="l-1", lease_id="l-1"))
        assert tx.cancel_open(job_row.seq) == 2
        assert tx.cancel_open(job_row.seq) == 0
        states = [task.state.value for task in tx.tasks_after(job_row.seq, -1, 9)]
        assert states == ["CANCELLED", "COMPLETED", "CANCELLED"]
        cancelled, completed = tx.lease("l-0"), tx.lease("l-1")
        assert cancelled is not None
        assert cancelled.state is LeaseState.CANCELLED
        assert completed is not None
        assert completed.state is LeaseState.COMPLETED
        left = tx.next_claimable(query(10**9))
        assert left is not None
        assert left.task_id == other.task_id


def test_event_ids_rise_and_pages_follow_one_another(store: LeaseStore) -> None:
    with store.transaction() as tx:
        tx.append([event("a"), event("b"), event(None), event("a")])
    with store.transaction() as tx:
        rows = tx.events_after(None, 0, 9)
        ids = [row.event_id for row in rows]
        assert ids == sorted(set(ids))
        assert [row.job_id for row in rows] == ["a", "b", None, "a"]
        of_a = tx.events_after("a", 0, 9)
        assert [row.event_id for row in of_a] == [ids[0], ids[3]]
        assert tx.events_after("a", of_a[0].event_id, 9) == [of_a[1]]
        assert tx.events_after("a", 2**70, 9) == []


def test_spooled_bytes_are_kept_in_order_until_they_are_dropped(store: LeaseStore) -> None:
    with store.transaction() as tx:
        for name in ("a", "b", "a"):
            tx.spool(name, name.encode())
        first, second, third = tx.spooled(0, 9)
        assert [row.sha256 for row in (first, second, third)] == ["a", "b", "a"]
        assert tx.spooled(first.number, 1) == [second]
        assert tx.spooled_bytes(second.number) == b"b"
        tx.unspool(second.number)
    with pytest.raises(OSError, match="undone"):
        _drop_all(store)
    with store.transaction() as tx:
        assert tx.spooled(0, 9) == [third]
        assert tx.spooled_bytes(second.number) is None
        tx.unspool(third.number)
        tx.spool("c", b"")
        assert tx.spooled(0, 9)[0].number > third.number


def _drop_all(store: LeaseStore) -> None:
    with store.transaction() as tx:
        tx.unspool(2**60)
        raise OSError("undone")


def test_one_of_several_keys_is_found_or_none(store: LeaseStore) -> None:
    with store.transaction() as tx:
        tx.put_object(ObjectRow("b", "s", 1))
        found = [tx.first_object(keys) for keys in ([], ["a"], ["a", "b", "c"])]
    assert found == [None, None, "b"]


def test_keys_below_a_key_are_found_and_neighbours_are_not(store: LeaseStore) -> None:
    with store.transaction() as tx:
        for key in ("a/b/c", "a-b", "a0", "ab/c"):
            tx.put_object(ObjectRow(key, "s", 1))
        found = [tx.key_below(key) for key in ("a", "a/b", "a/b/c", "ab", "a-", "")]
    assert found == ["a/b/c", "a/b/c", None, "ab/c", None, None]


def test_jobs_are_listed_newest_first(store: LeaseStore) -> None:
    with store.transaction() as tx:
        rows = [add(tx, f"job-{number}")[0] for number in range(3)]
        assert tx.jobs_before(None, 2) == [rows[2], rows[1]]
        assert tx.jobs_before(rows[1].seq, 9) == [rows[0]]
