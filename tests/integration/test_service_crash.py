"""What a coordinator keeps when it, or its ledger, is taken away in the middle of work."""

import hashlib
import json
import os
import random
import sqlite3
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from threading import Event
from time import monotonic
from typing import ParamSpec, TypeVar
from uuid import uuid4

import pytest

from flashruntime.client import CoordinatorClient
from flashruntime.errors import CoordinatorUnreachable, Superseded
from flashruntime.protocol.events import EventType
from flashruntime.protocol.jobs import JobSpec, JobState
from flashruntime.protocol.tasks import ClaimRequest, CompleteRequest, OutputFile
from flashruntime.testing import CoordinatorProcess

pytestmark = pytest.mark.integration
KILLS = 8
TASKS = 240
PATIENCE_S = 30.0
P = ParamSpec("P")
T = TypeVar("T")


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
            "metadata": {"name": "storm"},
            "spec": {"workload": {"type": "command", "parameters": parameters}},
        }
    )


class Player:
    """A worker of the test: repeats every call until it is answered, as real ones do."""

    def __init__(self, client: CoordinatorClient, node_id: str, job_id: str, stop: Event) -> None:
        self._client = client
        self._node_id = node_id
        self._job_id = job_id
        self._stop = stop
        self.accepted: dict[str, str] = {}

    def answered(self, call: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        deadline = monotonic() + PATIENCE_S
        while True:
            try:
                return call(*args, **kwargs)
            except CoordinatorUnreachable:
                if monotonic() > deadline:
                    raise
                self._stop.wait(0.02)

    def work(self) -> None:
        while not self._client_done():
            request = ClaimRequest(
                node_id=self._node_id, job_id=self._job_id, wait_s=0.2, claim_id=uuid4().hex
            )
            lease = self.answered(self._client.claim, request)
            if lease is None:
                continue
            key = f"{lease.output_prefix}/result"
            small = int(lease.lease_id[-1], 16) % 2 == 0
            data = lease.lease_id.encode() * (2 if small else 2_000)
            try:
                record = self.answered(self._client.put_artifact, key, data)
                output = OutputFile(path="result", key=key, sha256=record.sha256)
                done = CompleteRequest(outputs=[output])
                answer = self.answered(self._client.complete, lease.lease_id, done)
            except Superseded:
                continue
            if answer.accepted:
                self.accepted[lease.task_id] = record.sha256

    def _client_done(self) -> bool:
        return self.answered(self._client.job, self._job_id).state.terminal


def test_123_107_no_answered_commit_is_lost_and_none_accepted_twice_over_kills(
    tmp_path: Path,
) -> None:
    """Kill the coordinator again and again under load, while a foreign reader copies its file."""
    chance = random.Random(123)
    stop = Event()
    with (
        CoordinatorProcess(tmp_path) as process,
        ThreadPoolExecutor(4) as threads,
        process.client() as client,
    ):
        job = client.submit(spec(TASKS))
        players = [Player(client, f"n{number}", job.job_id, stop) for number in range(3)]
        working = [threads.submit(player.work) for player in players]
        copying = threads.submit(copy_until, stop, tmp_path / "ledger" / "ledger.sqlite3")
        try:
            for _ in range(KILLS):
                stop.wait(chance.uniform(0.05, 0.25))
                process.kill()
                process.start()
            for worked in working:
                worked.result(PATIENCE_S)
        finally:
            stop.set()
        assert copying.result(5) > 0
        assert client.job(job.job_id).state is JobState.SUCCEEDED
        answered = {}
        for player in players:
            assert not answered.keys() & player.accepted.keys()
            answered |= player.accepted
        stored = {item.task_id: item for item in client.artifacts(job.job_id)}
        assert len(stored) == TASKS
        assert answered.items() <= {(task_id, item.sha256) for task_id, item in stored.items()}
        events = client.events(job.job_id, limit=10_000).items
        accepted = [e.task_id for e in events if e.type is EventType.TASK_COMMIT_ACCEPTED]
        assert len(accepted) == len(set(accepted)) == TASKS
    check_bytes(tmp_path)


def copy_until(stop: Event, database: Path) -> int:
    """Copy the ledger over and over with a connection of our own, as a backup would."""
    copies = 0
    while not stop.wait(0.05):
        address = f"file:{database}?mode=ro"
        with closing(sqlite3.connect(address, uri=True)) as source:
            source.backup(sqlite3.connect(":memory:"))
        copies += 1
    return copies


def check_bytes(root: Path) -> None:
    """Every row's blob exists and verifies; nothing is left half written."""
    with sqlite3.connect(root / "ledger" / "ledger.sqlite3") as db:
        rows = db.execute("SELECT sha256, size_bytes FROM objects").fetchall()
    assert rows
    for sha256, size_bytes in rows:
        data = (root / "artifacts" / "sha256" / sha256[:2] / sha256).read_bytes()
        assert (hashlib.sha256(data).hexdigest(), len(data)) == (sha256, size_bytes)
    assert list((root / "artifacts" / "tmp").iterdir()) == []


@pytest.mark.parametrize("names", [["ledger.sqlite3"], ["ledger.sqlite3", "-wal", "-shm"]])
def test_125_a_deleted_ledger_is_noticed_and_nothing_is_promised_any_more(
    tmp_path: Path, names: list[str]
) -> None:
    with CoordinatorProcess(tmp_path) as process, process.client() as client:
        client.submit(spec(1))
        for name in names:
            file = name if name.startswith("ledger") else f"ledger.sqlite3{name}"
            (tmp_path / "ledger" / file).unlink()
        assert not client.healthy()
        with pytest.raises(CoordinatorUnreachable, match=r"503.*deleted or replaced"):
            client.submit(spec(1))
        deadline = monotonic() + 5
        while '"store_unavailable"' not in process.log.read_text():
            assert monotonic() < deadline
            client.healthy()
        lines = [json.loads(line) for line in process.log.read_text().splitlines()]
        assert "error" in {line["level"] for line in lines}
        assert process.stop() < 2


def test_a_full_disk_is_503_and_the_upload_leaves_nothing(tmp_path: Path) -> None:
    """A file-size limit of the process stands in for a full disk."""
    import resource

    with CoordinatorProcess(tmp_path) as process, process.client() as client:
        resource.prlimit(process.pid, resource.RLIMIT_FSIZE, (3_000_000, 3_000_000))
        with pytest.raises(CoordinatorUnreachable, match="free space"):
            client.put_artifact("big", os.urandom(4_000_000))
        assert client.put_artifact("small", b"x").size_bytes == 1
        assert list((tmp_path / "artifacts" / "tmp").iterdir()) == []
