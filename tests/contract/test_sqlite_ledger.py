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
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from flashruntime.clock import SystemClock
from flashruntime.errors import StoreLocked, StoreUnavailable
from flashruntime.leases.manager import LeaseManager
from flashruntime.leases.record import NodeRow, ObjectRow, Submission, TaskRow
from flashruntime.leases.sqlite import LOCK_NAME, SqliteStore
from flashruntime.leases.sqlite_schema import SCHEMA_VERSION
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


def put(store: SqliteStore, key: str) -> None:
    with store.transaction() as tx:
        tx.put_object(ObjectRow(key, "a" * 64, 1))


def has(store: SqliteStore, key: str) -> bool:
    with store.transaction() as tx:
        return tx.object(key) is not None


def test_every_commit_is_synchronised_to_disk(store: SqliteStore) -> None:
    assert store._db.execute("PRAGMA journal_mode").fetchone() == ("wal",)
    assert store._db.execute("PRAGMA synchronous").fetchone() == (2,)


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
def test_a_deleted_or_replaced_file_is_noticed(
    store: SqliteStore, path: Path, name: str, replaced: bool
) -> None:
    put(store, "k")
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


def test_a_full_disk_is_a_refusal_that_undoes_the_change(store: SqliteStore) -> None:
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


@contextmanager
def _files_limited_to(size_bytes: int) -> Iterator[None]:
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size_bytes, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def test_a_foreign_writer_delays_but_never_diverges(store: SqliteStore, path: Path) -> None:
    put(store, "before")
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    with pytest.raises(StoreUnavailable, match="locked"):
        put(store, "k")
    other.execute("ROLLBACK")
    other.close()
    assert not has(store, "k")
    put(store, "k")


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
    from flashruntime.leases.manager import LeaseManager
    from flashruntime.leases.record import Submission
    from flashruntime.leases.sqlite import SqliteStore
    from flashruntime.protocol.jobs import JobSpec
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


def job_spec() -> JobSpec:
    return JobSpec.model_validate(
        {
            "apiVersion": "flashml.dev/v1alpha1",
            "kind": "Job",
            "metadata": {"name": "j"},
            "spec": {"workload": {"type": "command", "parameters": {"command": ["true"]}}},
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
    store._db.set_trace_callback(seen.append)
    _call(manager, call, lease.lease_id, lease.commit_key, dead.lease_id)
    store._db.set_trace_callback(None)
    statements = [sql for sql in seen if re.match(r"\s*(SELECT|UPDATE|DELETE)", sql)]
    assert statements
    for sql in statements:
        for *_, plan in store._db.execute(f"EXPLAIN QUERY PLAN {sql}"):
            assert "INDEX" in plan or "PRIMARY KEY" in plan, (sql, plan)
            assert "TEMP B-TREE" not in plan, (sql, plan)


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


OLD_TASK = """INSERT INTO tasks
    (task_id, job_id, job_seq, idx, state, attempts, errors, losses, loss_run, best_step,
    not_before_ns, backoff_ns) VALUES ('t', 'j', 1, 0, 'PENDING', 0, 2, 0, 0, -1, 0, 0)"""
# What each version has brought: statements that lead back to the one before it.
NEWS = {
    3: [
        *(f"ALTER TABLE tasks DROP COLUMN {name}" for name in
          ("suspect_step", "failed_resume", "high_step", "recomputed")),
        *(f"ALTER TABLE leases DROP COLUMN {name}" for name in
          ("resumed_from", "checkpoint_step")),
        *(f"DROP TABLE {name}" for name in ("checkpoints", "part_references", "successions")),
    ],
    2: ["ALTER TABLE tasks DROP COLUMN same_run"],
}  # fmt: skip


@pytest.mark.parametrize("version", range(1, SCHEMA_VERSION))
def test_a_ledger_of_each_version_before_is_brought_up_to_date(
    tmp_path: Path, version: int
) -> None:
    """Whatever its version was, it ends with the tables of a new one."""
    path, new = tmp_path / "ledger.sqlite3", tmp_path / "new" / "ledger.sqlite3"
    for each in (path, new):
        SqliteStore(each).close()
    for newer in range(SCHEMA_VERSION, version, -1):
        for statement in NEWS[newer]:
            _run_sql(path, statement)
    _run_sql(path, OLD_TASK)
    _run_sql(path, f"UPDATE schema_version SET version = {version}")  # noqa: S608 (a number)
    for _ in range(2):
        store = SqliteStore(path)
        with store.transaction() as tx:
            task = tx.task("t")
            assert tx.checkpoints("t") == []
        store.close()
        assert task == TaskRow("t", "j", 1, 0, errors=2)
    assert _columns(path) == _columns(new)


def _columns(path: Path) -> dict[str, list[tuple[object, ...]]]:
    db = sqlite3.connect(path)
    names = [name for (name,) in db.execute("SELECT name FROM sqlite_master ORDER BY name")]
    found = {name: db.execute(f"PRAGMA table_xinfo('{name}')").fetchall() for name in names}
    db.close()
    return found
