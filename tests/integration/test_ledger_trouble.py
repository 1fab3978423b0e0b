"""A coordinator whose ledger is locked, copied or torn away by others: refusals, never a 500."""

import http.client
import json
import sqlite3
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from pathlib import Path
from threading import Event
from time import monotonic
from typing import Any

import pytest

from flashruntime.client import CoordinatorClient
from flashruntime.errors import CoordinatorUnreachable
from flashruntime.protocol.events import EventType
from flashruntime.protocol.jobs import JobSpec
from flashruntime.protocol.tasks import ClaimRequest, CompleteRequest, HeartbeatRequest, OutputFile
from flashruntime.testing import CoordinatorProcess

pytestmark = pytest.mark.integration
LOAD_S = 2.0
TASKS = 2_000


def spec(tasks: int, lease_s: float = 30.0) -> JobSpec:
    parameters = {
        "command": ["work", "{i}"],
        "task_params": [{"i": number} for number in range(tasks)],
        "lease_seconds": lease_s,
    }
    return JobSpec.model_validate(
        {
            "apiVersion": "flashml.dev/v1alpha1",
            "kind": "Job",
            "metadata": {"name": "trouble"},
            "spec": {"workload": {"type": "command", "parameters": parameters}},
        }
    )


def ledger(root: Path) -> Path:
    return root / "ledger" / "ledger.sqlite3"


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Hold the lock of a writer, as `sqlite3 ledger.sqlite3 'BEGIN IMMEDIATE'` would."""
    with closing(sqlite3.connect(path, isolation_level=None)) as db:
        db.execute("BEGIN IMMEDIATE")
        yield
        db.execute("ROLLBACK")


class Caller:
    """Raw requests over one connection, and what they were answered."""

    def __init__(self, port: int) -> None:
        self._http = http.client.HTTPConnection("127.0.0.1", port, timeout=20)
        self.statuses: Counter[int] = Counter()
        self.bare_refusals = 0

    def ask(self, method: str, path: str, body: object = None) -> Any:
        content = None if body is None else json.dumps(body).encode()
        headers = {} if body is None else {"Content-Type": "application/json"}
        self._http.request(method, f"/v1alpha1{path}", content, headers)
        answer = self._http.getresponse()
        data = answer.read()
        self.statuses[answer.status] += 1
        if answer.status == 503 and answer.headers["Retry-After"] is None:
            self.bare_refusals += 1
        return json.loads(data) if answer.status == 200 else None

    def play(self, number: int, until_s: float) -> None:
        """Claim, renew, complete, list and report for one node until then."""
        while monotonic() < until_s:
            lease = self.ask("POST", "/leases/claim", {"node_id": f"n{number}"})
            if lease is None:
                continue
            attempt = f"/attempts/{lease['lease_id']}"
            self.ask("POST", f"{attempt}/heartbeat", {"step": 1})
            self.ask("PUT", f"/artifacts/{lease['commit_key']}", number)
            self.ask("GET", f"/jobs/{lease['job_id']}")
            self.ask("POST", f"{attempt}/complete", {})


@pytest.mark.parametrize("journal", ["wal", "delete"])
def test_107_calls_beside_a_copying_loop_are_answered_or_refused_with_a_delay(
    tmp_path: Path, journal: str
) -> None:
    """Copies are made by connections of another process's kind, one after another."""
    with (
        CoordinatorProcess(tmp_path, {"FLASHML_LEDGER_JOURNAL": journal}) as process,
        process.client() as client,
        ThreadPoolExecutor(5) as threads,
    ):
        client.submit(spec(TASKS))
        until_s = monotonic() + LOAD_S
        callers = [Caller(process.port) for _ in range(4)]
        playing = [
            threads.submit(caller.play, number, until_s) for number, caller in enumerate(callers)
        ]
        copies = 0
        while monotonic() < until_s:
            with closing(sqlite3.connect(f"file:{ledger(tmp_path)}?mode=ro", uri=True)) as source:
                source.backup(sqlite3.connect(":memory:"))
            copies += 1
        for played in playing:
            played.result(20)
        answered = sum((caller.statuses for caller in callers), Counter())
        assert copies > 1
        assert set(answered) <= {200, 204, 503}
        assert answered[200] > 20
        assert sum(caller.bare_refusals for caller in callers) == 0
        done = client.jobs()[0].tasks["COMPLETED"]
        events = client.events(None, limit=10_000).items
        assert sum(e.type is EventType.TASK_COMMIT_ACCEPTED for e in events) == done > 0


def test_a_ledger_locked_for_long_is_503_and_costs_no_lease(tmp_path: Path) -> None:
    """Nobody could be heard while nothing could be written: no lease lapses for that time."""
    with CoordinatorProcess(tmp_path) as process, process.client() as client:
        client.submit(spec(1, lease_s=2.0))
        lease = client.claim(ClaimRequest(node_id="n"))
        assert lease is not None
        caller = Caller(process.port)
        with locked(ledger(tmp_path)):
            for path in ("heartbeat", "complete"):
                assert caller.ask("POST", f"/attempts/{lease.lease_id}/{path}", {}) is None
            assert not client.healthy()
        assert caller.statuses == {503: 2}
        assert caller.bare_refusals == 0
        client.heartbeat(lease.lease_id, HeartbeatRequest(step=1))
        kinds = {event.type for event in client.events(None).items}
        assert EventType.LEASE_EXPIRED not in kinds
        assert client.healthy()


def test_an_accepted_small_object_outlives_a_machine_that_loses_power(tmp_path: Path) -> None:
    """What no fsync has covered is gone then; truncating those files stands in for it."""
    with CoordinatorProcess(tmp_path) as process, process.client() as client:
        client.submit(spec(3))
        kept = dict(_one_result(client) for _ in range(3))
        process.kill()
        with closing(sqlite3.connect(ledger(tmp_path))) as db:
            waiting = [str(sha256) for (sha256,) in db.execute("SELECT sha256 FROM spool")]
        assert waiting, "the last one cannot have been settled yet"
        for sha256 in waiting:
            (tmp_path / "artifacts" / "sha256" / sha256[:2] / sha256).write_bytes(b"")
        process.start()
        for key, data in kept.items():
            target = tmp_path / "fetched"
            client.get_artifact(key, target)
            assert target.read_bytes() == data


def _one_result(client: CoordinatorClient) -> tuple[str, bytes]:
    lease = client.claim(ClaimRequest(node_id="n"))
    assert lease is not None
    data = f'{{"of": "{lease.lease_id}"}}'.encode()
    record = client.put_artifact(f"{lease.output_prefix}/metrics.json", data)
    output = OutputFile(path="metrics.json", key=record.object_key, sha256=record.sha256)
    assert client.complete(lease.lease_id, CompleteRequest(outputs=[output])).accepted
    return record.object_key, data


def test_125_a_ledger_put_back_in_place_is_taken_up_by_a_restart(tmp_path: Path) -> None:
    """What was refused never happened; what was answered is there."""
    path = ledger(tmp_path)
    with CoordinatorProcess(tmp_path) as process, process.client() as client:
        first = client.submit(spec(1))
        away = path.with_name("away")
        path.rename(away)
        with pytest.raises(CoordinatorUnreachable, match="503"):
            client.submit(spec(1))
        away.rename(path)
        assert process.stop() < 2
        process.start()
        assert first.job_id in {job.job_id for job in client.jobs()}
        assert client.claim(ClaimRequest(node_id="n")) is not None


def test_waiting_claims_survive_a_short_lock(tmp_path: Path) -> None:
    """A lock that ends within the busy timeout delays calls and fails none."""
    with (
        CoordinatorProcess(tmp_path) as process,
        process.client() as client,
        ThreadPoolExecutor(1) as threads,
    ):
        client.submit(spec(1))
        with locked(ledger(tmp_path)):
            claiming = threads.submit(client.claim, ClaimRequest(node_id="n"))
            Event().wait(0.3)
            assert not claiming.done()
        assert claiming.result(5) is not None
