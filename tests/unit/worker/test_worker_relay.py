"""Relaying on the worker's side, with a coordinator's checkpoint calls played by a stand-in."""

import hashlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from io import BytesIO
from itertools import repeat
from pathlib import Path
from threading import Event
from typing import Any

import httpx
import pytest

from flashruntime.checkpoint import Chain, Claim, Snapshot
from flashruntime.config import Relaying, WorkerSettings
from flashruntime.errors import (
    ArtifactCorrupt,
    ConfigError,
    Conflict,
    CoordinatorUnreachable,
    Superseded,
)
from flashruntime.protocol.base import strict_dumps
from flashruntime.protocol.checkpoints import (
    CheckpointRecord,
    CommitRequest,
    LatestCheckpoint,
    Part,
    PartsRequest,
    SetAsideRequest,
    Succession,
    TakenOver,
    TaskName,
)
from flashruntime.protocol.tasks import Lease, TaskPayload
from flashruntime.worker import relay as relaying
from flashruntime.worker.checkpoint_client import _receive
from flashruntime.worker.control import AttemptControl, StopRequest
from flashruntime.worker.relay import Relay
from flashruntime.worker.shared_root import is_loopback, is_on_network, relays_checkpoints

PATIENCE_S = 10.0


class Store:
    """Keeps what is committed; what it is told to raise comes at the next calls."""

    def __init__(self) -> None:
        self.blobs: dict[str, bytes] = {}
        self.commits: list[CommitRequest] = []
        self.asides: list[SetAsideRequest] = []
        self.attempts: dict[str, int] = {}
        self.failures: list[Exception] = []
        self.committed = Event()
        self.rotten: set[str] = set()
        self.calls = 0

    def _fail(self) -> None:
        self.calls += 1
        failures = self.failures
        if failures:
            raise failures.pop(0)

    def announce(self, name: TaskName, request: PartsRequest) -> Sequence[str]:
        self._fail()
        return [part.sha256 for part in request.parts if part.sha256 not in self.blobs]

    def put_part(self, name: TaskName, lease_id: str, part: Part, content: Iterator[bytes]) -> None:
        data = b"".join(content)
        assert hashlib.sha256(data).hexdigest() == part.sha256
        self.blobs[part.sha256] = data

    def commit(self, name: TaskName, request: CommitRequest) -> CheckpointRecord:
        assert all(part["sha256"] in self.blobs for part in request.manifest["parts"])  # type: ignore[index, union-attr]
        self.commits.append(request)
        self.committed.set()
        return self.record(request)

    def record(self, request: CommitRequest) -> CheckpointRecord:
        manifest: Any = request.manifest
        return CheckpointRecord(
            task_id="job-1-00000",
            manifest_id=manifest["manifest_id"],
            step=manifest["step"],
            lease_id=request.lease_id,
            attempt_number=self.attempts[request.lease_id],
            parts=len(manifest["parts"]),
            size_bytes=1,
            committed_at=datetime(2026, 1, 1, tzinfo=UTC),
        )

    def latest(self, name: TaskName, skip: Sequence[str]) -> LatestCheckpoint:
        self._fail()
        lineage = {
            request.lease_id: Succession(
                lease_id=request.lease_id,
                attempt_number=self.attempts[request.lease_id],
                takes_over=request.takes_over,
            )
            for request in self.commits
        }
        aside = [
            TakenOver(step=record.step, manifest_id=record.manifest_id)
            for record in map(self.record, self.commits)
            if record.manifest_id in {each.manifest_id for each in self.asides}
        ]
        state = LatestCheckpoint(lineage=list(lineage.values()), set_aside=aside)
        for request in reversed(self.commits):
            record = self.record(request)
            if record.manifest_id not in {*skip, *(each.manifest_id for each in self.asides)}:
                about = {"checkpoint": record, "manifest": request.manifest}
                return state.model_copy(update=about)
        return state

    def set_aside(self, name: TaskName, request: SetAsideRequest) -> CheckpointRecord:
        self._fail()
        self.asides.append(request)
        return self.record(self.commits[0])

    def get_part(self, name: TaskName, part: Part, to: Path) -> None:
        self._fail()
        if part.sha256 in self.rotten:
            raise ArtifactCorrupt
        to.write_bytes(self.blobs[part.sha256])


class Machine:
    """A worker's checkpoint root, and attempts of the one task on it."""

    def __init__(self, root: Path, store: Store) -> None:
        self.root = root
        self.store = store
        root.mkdir()

    @contextmanager
    def attempt(self, number: int, stop: StopRequest | None = None) -> Iterator["Running"]:
        lease = Lease(
            lease_id=f"lease-{number}",
            task_id="job-1-00000",
            job_id="job-1",
            task_index=0,
            node_id="n",
            attempt_number=number,
            lease_seconds=30.0,
            deadline=datetime(2026, 1, 1, tzinfo=UTC),
            commit_key="o/output",
            output_prefix="o",
            payload=TaskPayload(type="command"),
        )
        self.store.attempts[lease.lease_id] = number
        control = AttemptControl(stop or StopRequest(1.0))
        with Relay(lease, self.root, control, self.store) as relay:
            relay.fetch()
            claim = Claim(lease.lease_id, "job-1", number - 1)
            yield Running(relay, control, Chain.begin(self.root, claim))


class Running:
    """An attempt whose process has begun."""

    def __init__(self, relay: Relay, control: AttemptControl, chain: Chain) -> None:
        self.relay = relay
        self.control = control
        self.chain = chain

    def resumed(self) -> int | None:
        found = self.chain.resume()
        return None if found is None else found.step

    def save(self, step: int) -> None:
        self.chain.save(Snapshot(step, {"model": b"m%d" % step, "frozen": b"f"}))


@pytest.fixture
def store() -> Store:
    return Store()


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(relaying, "POLL_S", 0.005)
    monkeypatch.setattr(relaying, "delays_s", lambda: repeat(0.005))


def steps(store: Store) -> list[Any]:
    return [request.manifest["step"] for request in store.commits]


def test_a_new_checkpoint_is_sent_behind_the_training(tmp_path: Path, store: Store) -> None:
    with Machine(tmp_path / "a", store).attempt(1) as running:
        running.save(10)
        assert store.committed.wait(PATIENCE_S)
        assert steps(store) == [10]
        assert store.commits[0].takes_over is None


def test_another_machine_goes_on_from_what_was_sent(tmp_path: Path, store: Store) -> None:
    """And a third one, and the first one again, each from the newest of the chain."""
    first, second = Machine(tmp_path / "a", store), Machine(tmp_path / "b", store)
    with first.attempt(1) as running:
        running.save(10)
        running.save(20)
        running.relay.finish()
        running.save(30)
        running.relay.close()
    assert steps(store)[-1] == 20
    with second.attempt(2) as running:
        assert running.resumed() == 20
        running.save(25)
        running.relay.finish()
    taken = store.commits[-1].takes_over
    assert taken is not None
    assert taken.step == 20
    with Machine(tmp_path / "c", store).attempt(3) as running:
        assert running.resumed() == 25
    with first.attempt(4) as running:
        assert running.resumed() == 25, "30 of a superseded attempt lies here and does not count"


def test_what_a_tree_has_is_not_fetched(tmp_path: Path, store: Store) -> None:
    machine = Machine(tmp_path / "a", store)
    with machine.attempt(1) as running:
        running.save(10)
        running.relay.finish()
    store.rotten = set(store.blobs)
    with machine.attempt(2) as running:
        assert running.resumed() == 10


def test_a_checkpoint_that_cannot_be_had_whole_costs_only_the_way_to_the_next_older(
    tmp_path: Path, store: Store
) -> None:
    with Machine(tmp_path / "a", store).attempt(1) as running:
        for step in (10, 20):
            running.save(step)
            assert store.committed.wait(PATIENCE_S)
            store.committed.clear()
    assert steps(store) == [10, 20]
    store.rotten = {hashlib.sha256(b"m20").hexdigest()}
    with Machine(tmp_path / "b", store).attempt(2) as running:
        assert running.resumed() == 10
        assert running.control.lost is None


def test_c15_what_an_attempt_set_aside_is_told_and_counts_on_every_machine(
    tmp_path: Path, store: Store
) -> None:
    first = Machine(tmp_path / "a", store)
    with first.attempt(1) as running:
        for step in (10, 20):
            running.save(step)
            assert store.committed.wait(PATIENCE_S)
            store.committed.clear()
    with Machine(tmp_path / "b", store).attempt(2) as running:
        assert running.resumed() == 20
        running.chain.set_aside(20, "does not load")
        running.relay.finish()
    [aside] = store.asides
    assert (aside.lease_id, aside.reason) == ("lease-2", "does not load")
    with first.attempt(3) as running:
        assert running.resumed() == 10


def test_a_coordinator_that_is_away_is_waited_for_at_the_begin_and_never_later(
    tmp_path: Path, store: Store
) -> None:
    store.failures = [CoordinatorUnreachable()]
    with Machine(tmp_path / "a", store).attempt(1) as running:
        assert store.calls == 2
        store.failures = [CoordinatorUnreachable()] * 100_000
        running.save(10)
        running.save(20)
        already = store.calls
        while store.calls < already + 2:
            assert not store.committed.wait(0.01)
        store.failures = []
        assert store.committed.wait(PATIENCE_S)
        assert steps(store) == [20]


def test_a_checkpoint_that_is_refused_is_not_sent_for_ever(tmp_path: Path, store: Store) -> None:
    with Machine(tmp_path / "a", store).attempt(1) as running:
        store.failures = [Conflict()] * relaying.MAX_TRIES
        running.save(10)
        while store.failures:
            assert not store.committed.wait(0.01)
        running.save(20)
        assert store.committed.wait(PATIENCE_S)
        assert steps(store) == [20]


def test_a_superseded_attempt_is_lost(tmp_path: Path, store: Store) -> None:
    with Machine(tmp_path / "a", store).attempt(1) as running:
        store.failures = [Superseded("lease-2 holds it")]
        running.save(10)
        running.control.await_end_or_loss(PATIENCE_S)
        assert "lease-2 holds it" in str(running.control.lost)


def test_finishing_keeps_within_the_notice(tmp_path: Path, store: Store) -> None:
    stop = StopRequest(0.2)
    with Machine(tmp_path / "a", store).attempt(1, stop) as running:
        store.failures = [CoordinatorUnreachable()] * 1_000
        running.save(10)
        stop.request()
        running.relay.finish()
        assert stop.remaining_s() > 0
        assert steps(store) == []


def test_a_worker_that_is_to_leave_does_not_go_on_fetching(tmp_path: Path, store: Store) -> None:
    with Machine(tmp_path / "a", store).attempt(1) as running:
        running.save(10)
        running.relay.finish()
    stop = StopRequest(5.0)
    stop.request()
    with Machine(tmp_path / "b", store).attempt(2, stop) as running:
        assert running.resumed() is None


def test_what_is_sent_is_the_manifest_to_the_byte(tmp_path: Path, store: Store) -> None:
    with Machine(tmp_path / "a", store).attempt(1) as running:
        running.save(10)
        running.relay.finish()
    on_disk = (tmp_path / "a/step-000010/manifest.json").read_bytes()
    assert strict_dumps(store.commits[0].manifest).encode() + b"\n" == on_disk


MOUNTS = r"""
21 1 8:1 / / rw - ext4 /dev/sda1 rw
30 21 0:40 / /mnt/shared\040data rw shared:1 - nfs4 host:/x rw
31 21 0:41 / /mnt/bucket rw - fuse.s3fs s3fs rw
32 31 8:2 / /mnt/bucket/local rw - xfs /dev/sdb rw
33 21 0:42 / /mnt rw - tmpfs tmpfs rw
""".strip()


@pytest.mark.parametrize(
    ("root", "url", "setting", "relays"),
    [
        ("/var/ck", "http://coordinator:8000", "auto", True),
        ("/mnt/shared data/ck", "http://coordinator:8000", "auto", False),
        ("/mnt/shared data", "http://10.0.0.7", "auto", False),
        ("/mnt/shared data/ck", "http://coordinator:8000", "on", True),
        ("/mnt/bucket/ck", "http://coordinator:8000", "auto", False),
        ("/mnt/bucket/local/ck", "http://coordinator:8000", "auto", True),
        ("/mnt/shared", "http://coordinator:8000", "auto", True),
        ("/var/ck", "http://127.0.0.1:8000", "auto", False),
        ("/var/ck", "http://[::1]:8000", "auto", False),
        ("/var/ck", "http://localhost:8000", "auto", False),
        ("/var/ck", "http://localhost:8000", "on", True),
        ("/var/ck", "http://coordinator:8000", "off", False),
    ],
)
def test_the_rule_which_workers_relay(
    tmp_path: Path, root: str, url: str, setting: str, relays: bool
) -> None:
    mounts = tmp_path / "mountinfo"
    mounts.write_text(MOUNTS)
    settings = WorkerSettings(url, Path(root), tmp_path, "n", checkpoint_relay=Relaying(setting))
    assert relays_checkpoints(settings, mounts) is relays


def test_without_a_list_of_mounts_nothing_is_a_network(tmp_path: Path) -> None:
    assert not is_on_network(tmp_path, tmp_path / "none")
    assert not is_loopback("http://worker.example")


def test_the_setting_is_one_of_three() -> None:
    assert WorkerSettings.from_env({}).checkpoint_relay is Relaying.AUTO
    assert WorkerSettings.from_env({"FLASHML_CHECKPOINT_RELAY": "on"}).checkpoint_relay == "on"
    with pytest.raises(ConfigError, match="FLASHML_CHECKPOINT_RELAY='yes' must be auto, on or off"):
        WorkerSettings.from_env({"FLASHML_CHECKPOINT_RELAY": "yes"})


@pytest.mark.parametrize("came", [b"", b"abd", b"abcd", b"ab"])
def test_l3_bytes_that_are_not_those_of_the_manifest_are_refused_on_arrival(came: bytes) -> None:
    digest = hashlib.sha256(b"abc").hexdigest()
    part = Part(key="p", sha256=digest, size_bytes=3)
    _receive(httpx.Response(200, content=b"abc"), part, BytesIO())
    with pytest.raises(ArtifactCorrupt, match=f"{len(came)} of 3 bytes"):
        _receive(httpx.Response(200, content=came), part, BytesIO())
