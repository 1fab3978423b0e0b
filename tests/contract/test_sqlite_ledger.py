"""What the SQLite ledger promises beyond the port: durability, one writer, honest refusals."""

import os
import random
import re
import resource
import shutil
import signal
import sqlite3
import subprocess
import sys
import textwrap
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

import pytest

from flashruntime.clock import SystemClock
from flashruntime.errors import StoreLocked, StoreUnavailable
from flashruntime.leases.journal import Journal
from flashruntime.leases.manager import LeaseManager
from flashruntime.leases.record import NodeRow, ObjectRow, Submission
from flashruntime.leases.sqlite import LOCK_NAME, SqliteStore
from flashruntime.protocol.failures import Decision, FailureClass, RecoveryAction
from flashruntime.protocol.jobs import JobSpec
from flashruntime.protocol.tasks import (
    ClaimRequest,
    CompleteRequest,
    FailRequest,
    HeartbeatRequest,
    TaskPayload,
)

ROOT = Path(__file__).parents[2]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "ledger" / "ledger.sqlite3"


@pytest.fixture
def store(path: Path) -> Iterator[SqliteStore]:
    made = SqliteStore(path, busy_timeout_s=0.05)
    yield made
    made.close()


@pytest.fixture(params=list(Journal))
def either(path: Path, request: pytest.FixtureRequest) -> Iterator[SqliteStore]:
    """A ledger in each journal mode."""
    made = SqliteStore(path, busy_timeout_s=0.05, journal=request.param)
    yield made
    made.close()


def put(store: SqliteStore, key: str) -> None:
    with store.transaction() as tx:
        tx.put_object(ObjectRow(key, "a" * 64, 1))


def has(store: SqliteStore, key: str) -> bool:
    with store.transaction() as tx:
        return tx.object(key) is not None


@pytest.mark.parametrize(("journal", "level"), [(Journal.WAL, 2), (Journal.DELETE, 3)])
def test_every_commit_is_synchronised_to_disk(path: Path, journal: Journal, level: int) -> None:
    """Beside a rollback journal only EXTRA makes the commit itself, its deletion, durable."""
    store = SqliteStore(path, journal=journal)
    assert store._db.execute("PRAGMA journal_mode").fetchone() == (journal.value,)
    assert store._db.execute("PRAGMA synchronous").fetchone() == (level,)
    store.close()


def test_127_the_journal_mode_can_be_changed_between_starts(path: Path) -> None:
    kept = []
    for number, journal in enumerate((Journal.WAL, Journal.DELETE, Journal.DELETE, Journal.WAL)):
        store = SqliteStore(path, journal=journal)
        put(store, f"k-{number}")
        kept += [has(store, f"k-{each}") for each in range(number + 1)]
        store.close()
    assert all(kept)


def test_127_a_place_that_cannot_carry_the_mode_is_refused_with_the_remedy(path: Path) -> None:
    SqliteStore(path).close()
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("BEGIN")
    other.execute("SELECT * FROM nodes").fetchall()
    with pytest.raises(StoreUnavailable):
        SqliteStore(path, journal=Journal.DELETE, busy_timeout_s=0.05)
    other.close()
    SqliteStore(path, journal=Journal.DELETE).close()


def test_a_second_coordinator_is_told_what_to_do(store: SqliteStore, path: Path) -> None:
    with pytest.raises(StoreLocked) as caught:
        SqliteStore(path)
    for part in (str(path.parent / LOCK_NAME), str(os.getpid()), "FLASHML_LEDGER_DIR"):
        assert part in str(caught.value)
    put(store, "k")


def test_a_closed_ledger_can_be_opened_again(store: SqliteStore, path: Path) -> None:
    put(store, "k")
    store.close()
    store.close()
    again = SqliteStore(path)
    assert has(again, "k")
    again.close()


@pytest.mark.parametrize("name", ["", "-wal", "-shm"])
@pytest.mark.parametrize("replaced", [False, True])
@pytest.mark.parametrize("settled", [False, True])
def test_a_deleted_or_replaced_file_is_noticed(
    store: SqliteStore, path: Path, name: str, replaced: bool, settled: bool
) -> None:
    """Also once the directory has not changed for so long that it is asked alone."""
    put(store, "k")
    if settled:
        long_ago = time.time() - 60
        os.utime(path.parent, (long_ago, long_ago))
        put(store, "k")
        assert store._files._unchanged is not None
    file = path.with_name(path.name + name)
    if replaced:
        copy = file.with_name("copy")
        shutil.copy(file, copy)
        copy.replace(file)
    else:
        file.unlink()
    for _ in range(2):
        with pytest.raises(StoreUnavailable, match=re.escape(str(file))):
            put(store, "lost")


def test_a_directory_that_changed_just_now_proves_nothing(store: SqliteStore, path: Path) -> None:
    """A second change within the same tick of the clock may leave the same time stamp."""
    put(store, "k")
    before = path.parent.stat()
    path.unlink()
    os.utime(path.parent, ns=(before.st_atime_ns, before.st_mtime_ns))
    with pytest.raises(StoreUnavailable, match="deleted"):
        put(store, "lost")


def test_a_directory_replaced_by_another_is_noticed(store: SqliteStore, path: Path) -> None:
    os.utime(path.parent, (0, 0))
    put(store, "k")
    path.parent.rename(path.parent.with_name("away"))
    shutil.copytree(path.parent.with_name("away"), path.parent)
    os.utime(path.parent, (0, 0))
    with pytest.raises(StoreUnavailable, match="replaced"):
        put(store, "lost")


def test_a_file_deleted_within_a_transaction_is_noticed(store: SqliteStore, path: Path) -> None:
    def put_while_deleted() -> None:
        with store.transaction() as tx:
            tx.put_object(ObjectRow("k", "a", 1))
            path.unlink()

    with pytest.raises(StoreUnavailable, match="deleted"):
        put_while_deleted()


def test_a_deleted_lock_file_is_noticed(store: SqliteStore, path: Path) -> None:
    (path.parent / LOCK_NAME).unlink()
    with pytest.raises(StoreUnavailable, match=LOCK_NAME):
        put(store, "k")


def test_a_full_disk_is_a_refusal_that_undoes_the_change(either: SqliteStore) -> None:
    store = either
    put(store, "before")
    (pages,) = store._db.execute("PRAGMA page_count").fetchone()
    store._db.execute(f"PRAGMA max_page_count={pages}")

    def put_many() -> None:
        with store.transaction() as tx:
            for number in range(1_000):
                tx.put_object(ObjectRow(f"k-{number}", "a" * 64, 1))

    with pytest.raises(StoreUnavailable, match="full"):
        put_many()
    assert has(store, "before")
    assert not has(store, "k-0")
    store._db.execute("PRAGMA max_page_count=1000000")
    put(store, "after")
    assert has(store, "after")


def test_a_write_that_the_system_refuses_is_a_refusal_too(store: SqliteStore, path: Path) -> None:
    put(store, "before")
    with _files_limited_to(path.with_name(path.name + "-wal").stat().st_size):
        with pytest.raises(StoreUnavailable):
            put(store, "refused")
        assert has(store, "before")
    put(store, "after")
    assert has(store, "after")
    assert not has(store, "refused")


def test_a_group_whose_commit_is_refused_is_refused_whole(store: SqliteStore, path: Path) -> None:
    put(store, "before")

    def put_two() -> None:
        with store.group():
            put(store, "one")
            put(store, "two")
            assert has(store, "one")

    with _files_limited_to(path.with_name(path.name + "-wal").stat().st_size):
        with pytest.raises(StoreUnavailable):
            put_two()
        assert [has(store, key) for key in ("before", "one", "two")] == [True, False, False]
    put_two()
    assert [has(store, key) for key in ("one", "two")] == [True, True]


def test_a_change_that_finds_no_room_takes_its_group_along(store: SqliteStore) -> None:
    """SQLite gives up the whole transaction then; nobody in the group may be told otherwise."""
    put(store, "before")
    (pages,) = store._db.execute("PRAGMA page_count").fetchone()
    store._db.execute(f"PRAGMA max_page_count={pages}")

    def put_many() -> None:
        with store.transaction() as tx:
            for number in range(1_000):
                tx.put_object(ObjectRow(f"k-{number}", "a" * 64, 1))

    def put_group() -> None:
        with store.group():
            put(store, "one")
            with pytest.raises(StoreUnavailable, match="full"):
                put_many()
            with pytest.raises(StoreUnavailable, match="group"):
                put(store, "two")

    with pytest.raises(StoreUnavailable, match="group"):
        put_group()
    assert [has(store, key) for key in ("one", "k-0", "two")] == [False] * 3
    put(store, "after")
    assert has(store, "after")


def test_reading_costs_no_write(store: SqliteStore, path: Path) -> None:
    put(store, "k")
    before = path.with_name(path.name + "-wal").stat()
    with store.group():
        for _ in range(3):
            assert has(store, "k")
    after = path.with_name(path.name + "-wal").stat()
    assert (after.st_mtime_ns, after.st_size) == (before.st_mtime_ns, before.st_size)


@contextmanager
def _files_limited_to(size_bytes: int) -> Iterator[None]:
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size_bytes, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def test_107_a_foreign_writer_delays_but_never_diverges(either: SqliteStore, path: Path) -> None:
    store = either
    put(store, "before")
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    with pytest.raises(StoreUnavailable, match="locked"):
        put(store, "k")
    other.execute("ROLLBACK")
    other.close()
    assert not has(store, "k")
    put(store, "k")


def test_107_a_reader_that_blocks_the_commit_of_a_group_fails_all_of_it(path: Path) -> None:
    """Without a write-ahead log the lock is only taken at the end, after everything has run."""
    store = SqliteStore(path, busy_timeout_s=0.05, journal=Journal.DELETE)
    put(store, "before")
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("BEGIN")
    other.execute("SELECT * FROM objects").fetchall()

    def put_two() -> None:
        with store.group():
            put(store, "one")
            put(store, "two")

    with pytest.raises(StoreUnavailable, match="locked"):
        put_two()
    assert [has(store, key) for key in ("before", "one", "two")] == [True, False, False]
    other.close()
    put_two()
    assert has(store, "two")
    store.close()


def test_125_a_ledger_deleted_without_a_log_beside_it_is_noticed(path: Path) -> None:
    store = SqliteStore(path, journal=Journal.DELETE)
    put(store, "k")
    path.unlink()
    for _ in range(2):
        with pytest.raises(StoreUnavailable):
            put(store, "lost")
    store.close()


def test_a_backup_may_run_beside_the_coordinator(store: SqliteStore, path: Path) -> None:
    put(store, "k")
    copy = sqlite3.connect(path.with_name("copy"))
    source = sqlite3.connect(path)
    source.backup(copy)
    put(store, "l")
    assert copy.execute("SELECT count(*) FROM objects").fetchone() == (1,)
    source.close()
    copy.close()


def test_a_damaged_ledger_is_refused_at_start(store: SqliteStore, path: Path) -> None:
    for number in range(500):
        put(store, f"key-{number}")
    store.close()
    with path.open("r+b") as file:
        for page in range(8, file.seek(0, os.SEEK_END) // 4096):
            file.seek(page * 4096)
            file.write(b"\xa5" * 512)
    with pytest.raises(StoreUnavailable, match=r"damaged|malformed"):
        SqliteStore(path)


@pytest.mark.parametrize("case", ["text", "foreign", "newer", "folder", "unreachable"])
def test_what_is_not_our_ledger_is_refused_at_start(tmp_path: Path, case: str) -> None:
    path = tmp_path / "ledger.sqlite3"
    if case == "text":
        path.write_text("dear diary, this is not a database at all" * 100)
    elif case == "foreign":
        _run_sql(path, "CREATE TABLE poems (line TEXT)")
    elif case == "newer":
        SqliteStore(path).close()
        _run_sql(path, "UPDATE schema_version SET version = 99")
    elif case == "folder":
        path.mkdir()
    else:
        (tmp_path / "file").touch()
        path = tmp_path / "file" / "ledger.sqlite3"
    for _ in range(2):
        with pytest.raises(StoreUnavailable, match=re.escape(str(path))) as caught:
            SqliteStore(path)
        assert not isinstance(caught.value, StoreLocked)


def _run_sql(path: Path, sql: str) -> None:
    db = sqlite3.connect(path)
    with db:
        db.execute(sql)
    db.close()


@pytest.mark.parametrize(
    "sql",
    [
        "DELETE FROM {table}",
        "UPDATE {table} SET state='FAILED'",
        "  delete from {table} WHERE job_id='job-1'",
        "WITH x AS (SELECT 1) UPDATE {table} SET state='FAILED' WHERE 1 IN x",
    ],
)
@pytest.mark.parametrize("table", ["jobs", "tasks", "leases"])
def test_rows_changed_by_any_statement_are_read_again(
    store: SqliteStore, sql: str, table: str
) -> None:
    manager = LeaseManager(store, SystemClock())
    manager.submit(Submission("job-1", job_spec(), (TaskPayload(type="command"),), 30.0, "k", "d"))
    lease = manager.claim(ClaimRequest(node_id="w1"))
    assert lease is not None

    def states() -> dict[str, str | None]:
        with store.transaction() as tx:
            found = tx.job("job-1"), tx.task(lease.task_id), tx.lease(lease.lease_id)
        names = ("jobs", "tasks", "leases")
        return {name: row and row.state.value for name, row in zip(names, found, strict=True)}

    before = states()
    with store.transaction():
        store._db.execute(sql.format(table=table))
    after = states()
    left = None if "delete" in sql.lower() else "FAILED"
    assert after == {**before, table: left}


def test_rows_of_an_undone_change_are_read_again(store: SqliteStore) -> None:
    manager = LeaseManager(store, SystemClock())
    manager.submit(Submission("job-1", job_spec(), (TaskPayload(type="command"),), 30.0, "k", "d"))

    def lose_a_claim() -> None:
        with store.group():
            assert manager.claim(ClaimRequest(node_id="w1")) is not None
            raise StoreUnavailable("lost")

    with pytest.raises(StoreUnavailable, match="lost"):
        lose_a_claim()
    assert manager.job("job-1").tasks["LEASED"] == 0
    assert manager.tasks("job-1", None, 1).items[0].attempts == 0
    again = manager.claim(ClaimRequest(node_id="w1"))
    assert again is not None
    assert again.attempt_number == 1


def test_broken_unicode_and_zero_bytes_are_stored(store: SqliteStore) -> None:
    with store.transaction() as tx:
        tx.put_node(NodeRow("w\x00é", "s", "\x00", SystemClock().utc_now(), "{}"))
    with store.transaction() as tx:
        found = tx.node("w\x00é")
    assert found is not None
    assert found.hostname == "\x00"


CHILD = """
    import sys
    from pathlib import Path
    from flashruntime.clock import SystemClock
    from flashruntime.leases.journal import Journal
from flashruntime.leases.manager import LeaseManager
    from flashruntime.leases.record import Submission
    from flashruntime.leases.sqlite import SqliteStore
    from flashruntime.protocol.jobs import JobSpec
from flashruntime.protocol.nodes import NodeDuty
    from flashruntime.protocol.tasks import *

    manager = LeaseManager(SqliteStore(Path(sys.argv[1])), SystemClock())
    manager.start()
    spec = JobSpec.model_validate_json(sys.argv[2])

    def say(*words):
        print(*words, flush=True)

    for number in range(10**6):
        job_id = f"job-{number}"
        manager.submit(Submission(job_id, spec, (TaskPayload(type="command"),), 30.0, job_id, "d"))
        say("submitted", job_id, "-")
        lease = manager.claim(ClaimRequest(node_id="w1", job_id=job_id, claim_id=job_id))
        say("claimed", job_id, lease.lease_id)
        manager.heartbeat(lease.lease_id, HeartbeatRequest(step=number))
        say("beat", lease.lease_id, number)
        manager.put_object(lease.commit_key, "a" * 64, 1, None)
        say("stored", lease.commit_key, "-")
        manager.complete(lease.lease_id, CompleteRequest(output_sha256="a" * 64))
        say("completed", job_id, lease.lease_id)
"""


def job_spec(**asks: object) -> JobSpec:
    return JobSpec.model_validate(
        {
            "apiVersion": "flashml.dev/v1alpha1",
            "kind": "Job",
            "metadata": {"name": "j"},
            "spec": {"workload": {"type": "command", "parameters": {"command": ["true"], **asks}}},
        }
    )


@pytest.mark.parametrize("seed", range(4))
def test_what_was_acknowledged_is_there_after_a_kill(path: Path, seed: int) -> None:
    command = [sys.executable, "-c", textwrap.dedent(CHILD), str(path)]
    child = subprocess.Popen(
        [*command, job_spec().model_dump_json()],
        stdout=subprocess.PIPE,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        text=True,
    )
    assert child.stdout is not None
    lines = [child.stdout.readline() for _ in range(random.Random(seed).randint(20, 300))]
    os.kill(child.pid, signal.SIGKILL)
    lines += child.stdout.readlines()
    child.wait()
    store = SqliteStore(path)
    manager = LeaseManager(store, SystemClock())
    manager.start()
    for line in lines:
        if line.endswith("\n"):
            kind, name, value = line.split()
            _check_acknowledged(manager, store, kind, name, value)
    store.close()


def _check_acknowledged(
    manager: LeaseManager, store: SqliteStore, kind: str, name: str, value: str
) -> None:
    if kind == "submitted":
        assert manager.job(name).tasks
    elif kind == "claimed":
        assert manager.tasks(name, None, 1).items[0].lease_id == value
    elif kind == "beat":
        with store.transaction() as tx:
            lease = tx.lease(name)
        assert lease is not None
        assert lease.step == int(value)
    elif kind == "stored":
        assert manager.object(name).sha256 == "a" * 64
    else:
        assert manager.job(name).state.value == "SUCCEEDED"
        assert manager.complete(value, CompleteRequest(output_sha256="a" * 64)).accepted


HOT = ("claim", "claim_job", "heartbeat", "put", "complete", "fail", "sweep", "due", "refused")


@pytest.mark.parametrize("call", HOT)
def test_no_hot_call_walks_a_table(store: SqliteStore, call: str) -> None:
    """The cost of a request must not grow with the queue or with what is finished."""
    manager = LeaseManager(store, SystemClock())
    manager.start()
    payloads = (TaskPayload(type="command"),) * 300
    manager.submit(Submission("job-1", job_spec(), payloads, 30.0, "key", "d"))
    lease = manager.claim(ClaimRequest(node_id="w1"))
    dead = manager.claim(ClaimRequest(node_id="w1"))
    assert lease is not None
    assert dead is not None
    manager.lapse_node("w1", None)
    manager.heartbeat(lease.lease_id, HeartbeatRequest())
    manager.claim(ClaimRequest(node_id="w2"))
    seen: list[str] = []
    store._tx.forget()
    store._db.set_trace_callback(seen.append)
    _call(manager, call, lease.lease_id, lease.commit_key, dead.lease_id)
    store._db.set_trace_callback(None)
    statements = [sql for sql in seen if re.match(r"\s*(SELECT|UPDATE|DELETE)", sql)]
    assert statements
    for sql in statements:
        for *_, plan in store._db.execute(f"EXPLAIN QUERY PLAN {sql}"):
            assert "INDEX" in plan or "PRIMARY KEY" in plan, (sql, plan)
            assert "TEMP B-TREE" not in plan, (sql, plan)


@pytest.mark.parametrize(
    ("needs", "more"),
    [(1, 2_900), (20, 2_900), pytest.param(20, 100_000, marks=pytest.mark.bench_stress)],
)
def test_what_fits_no_node_costs_a_claim_nothing_for_its_number(
    store: SqliteStore, needs: int, more: int
) -> None:
    """The work of the database in a claim, for heads of 100 and of many tasks that do not fit."""
    manager = LeaseManager(store, SystemClock())
    manager.start()
    steps = []
    for tasks in (100, more):
        for number in range(needs):
            spec = job_spec(resources={"cpus": 1 + number})
            payloads = (TaskPayload(type="command"),) * (tasks // needs)
            job_id = f"job-{tasks}-{number}"
            manager.submit(Submission(job_id, spec, payloads, 30.0, None, "d"))
        last = Submission(
            f"small-{tasks}", job_spec(), (TaskPayload(type="c"),) * 2, 30.0, None, ""
        )
        manager.submit(last)
        steps.append(_steps(store, manager))
    assert steps[1] < 1.2 * steps[0]


def _steps(store: SqliteStore, manager: LeaseManager) -> int:
    count = 0

    def step() -> int:
        nonlocal count
        count += 1
        return 0

    for measured in (False, True):
        store._db.set_progress_handler(step if measured else None, 10)
        lease = manager.claim(ClaimRequest(node_id="w"))
        store._db.set_progress_handler(None, 0)
        assert lease is not None
        assert lease.job_id.startswith("small")
    return count


def _call(manager: LeaseManager, call: str, lease_id: str, key: str, dead: str) -> None:
    decision = Decision(
        failure_class=FailureClass.UNKNOWN,
        action=RecoveryAction.RETRY_TASK,
        counts_as_error=True,
        reason="r",
        policy_version="1",
    )
    if call == "claim":
        manager.claim(ClaimRequest(node_id="w3", claim_id="c"))
    elif call == "claim_job":
        manager.claim(ClaimRequest(node_id="w3", job_id="job-1"))
    elif call == "heartbeat":
        manager.heartbeat(lease_id, HeartbeatRequest(step=1, metrics={"a": 1}))
    elif call == "put":
        manager.put_object(key, "a" * 64, 1, lease_id)
    elif call == "complete":
        manager.complete(lease_id, CompleteRequest())
    elif call == "fail":
        manager.fail(lease_id, FailRequest(reason="r"), lambda *_: decision)
    elif call == "sweep":
        manager.sweep()
    elif call == "due":
        manager.next_due_ns()
    else:
        assert not manager.complete(dead, CompleteRequest()).accepted


def test_a_refused_statement_leaves_changes_of_rows_noticed(store: SqliteStore) -> None:
    """Whatever changes a row behind what is kept of it is seen, also after an error."""
    manager = LeaseManager(store, SystemClock())
    payloads = (TaskPayload(type="command"),)
    manager.submit(Submission("job-1", job_spec(), payloads, 30.0, None, "d"))
    with store.transaction() as tx:
        job = tx.job("job-1")
    assert job is not None
    with store.group():
        store._db.execute("PRAGMA query_only=1")
        with pytest.raises(StoreUnavailable), store.transaction() as tx:
            tx.put_job(job)
        store._db.execute("PRAGMA query_only=0")
        with store.transaction() as tx:
            tx.job("job-1")
            tx.retire_job(job, datetime.now(UTC))
            assert tx.job("job-1") is None
