"""Any order of calls, losses, zombies, clock jumps and restarts keeps the promises of a lease."""

import shutil
import tempfile
from hashlib import sha256
from itertools import count
from pathlib import Path

import pytest

from flashruntime.leases.manager import LeaseManager
from flashruntime.leases.memory import MemoryStore
from flashruntime.leases.record import Submission
from flashruntime.leases.sqlite import SqliteStore
from flashruntime.leases.store import LeaseStore
from flashruntime.protocol.events import Event
from flashruntime.protocol.jobs import JobRecord, JobSpec
from flashruntime.protocol.nodes import NodeRecord, NodeRegistered, NodeRegistration
from flashruntime.protocol.tasks import (
    ArtifactRecord,
    ClaimRequest,
    CompleteAnswer,
    CompleteRequest,
    FailAnswer,
    FailRequest,
    HeartbeatRequest,
    Lease,
    LeaseStatus,
    TaskRecord,
)
from flashruntime.recovery.incidents import Judge
from flashruntime.service.expand import expand
from flashruntime.testing import ManualClock
from tests.unit.leases.machine_rules import CoordinatorMachine, Port
from tests.unit.leases.machine_run import run


class ManagerPort:
    """A manager on a store in memory."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.store = self.open_store()
        self._numbers = count(1)
        self._start()

    def open_store(self) -> LeaseStore:
        return MemoryStore()

    def reopen_store(self) -> LeaseStore:
        return self.store

    def _start(self) -> None:
        self.judge = Judge(self.clock.monotonic_ns)
        self.manager = LeaseManager(self.store, self.clock, self.judge.decide)
        self.manager.start()

    def submit(self, spec: JobSpec, key: str | None) -> JobRecord:
        digest = sha256(spec.model_dump_json().encode()).hexdigest()
        lease_s = spec.spec.workload.parameters.lease_seconds
        name = f"job-{next(self._numbers)}"
        submission = Submission(name, spec, expand(spec), lease_s, key, digest)
        return self.manager.submit(submission)[0]

    def cancel(self, job_id: str) -> JobRecord:
        return self.manager.cancel_job(job_id)

    def register(self, registration: NodeRegistration) -> NodeRegistered:
        return self.manager.register_node(registration)

    def claim(self, request: ClaimRequest) -> Lease | None:
        return self.manager.claim(request)

    def heartbeat(self, lease_id: str, request: HeartbeatRequest) -> LeaseStatus:
        return self.manager.heartbeat(lease_id, request)

    def put(self, key: str, data: bytes) -> ArtifactRecord:
        return self.manager.put_object(key, sha256(data).hexdigest(), len(data), None)

    def complete(self, lease_id: str, request: CompleteRequest) -> CompleteAnswer:
        return self.manager.complete(lease_id, request)

    def fail(self, lease_id: str, request: FailRequest) -> FailAnswer:
        return self.manager.fail(lease_id, request, self.judge.decide)

    def jobs(self) -> list[JobRecord]:
        return self.manager.jobs(None, 100).items

    def tasks(self, job_id: str) -> list[TaskRecord]:
        return self.manager.tasks(job_id, None, 100).items

    def events(self, after: int) -> list[Event]:
        return self.manager.events(None, after, 10_000).items

    def accepted(self, job_id: str) -> list[ArtifactRecord]:
        return self.manager.job_objects(job_id).items

    def nodes(self) -> list[NodeRecord]:
        return self.manager.nodes().items

    def live(self, node: str) -> list[str]:
        with self.store.transaction() as tx:
            return [lease.lease_id for lease in tx.live_leases(node)]

    def sweep(self) -> int:
        return self.manager.sweep()

    def session_ends(self, node: str, session_id: str | None) -> int:
        return self.manager.lapse_node(node, session_id)

    def now_ns(self) -> int:
        return self.clock.monotonic_ns()

    def advance(self, seconds: float) -> None:
        self.clock.advance(seconds)

    def jump_wall(self, seconds: float) -> None:
        self.clock.jump_wall(seconds)

    def restart(self, reboot: bool) -> None:
        self.store = self.reopen_store()
        self.clock = ManualClock() if reboot else self.clock
        self._start()

    def close(self) -> None:
        self.store.close()


class SqlitePort(ManagerPort):
    """The same on disk; a restart closes and opens the file."""

    def open_store(self) -> LeaseStore:
        self.folder = Path(tempfile.mkdtemp())
        return SqliteStore(self.folder / "ledger.sqlite3")

    def reopen_store(self) -> LeaseStore:
        self.store.close()
        return SqliteStore(self.folder / "ledger.sqlite3")

    def close(self) -> None:
        super().close()
        shutil.rmtree(self.folder)


class ManagerMachine(CoordinatorMachine):
    """The manager alone, in memory."""

    def open(self) -> Port:
        return ManagerPort()


class LedgerMachine(CoordinatorMachine):
    """The manager on its ledger."""

    def open(self) -> Port:
        return SqlitePort()


@pytest.mark.parametrize(
    ("machine", "examples"),
    [(ManagerMachine, 60), (LedgerMachine, 15)],
    ids=["memory", "sqlite"],
)
def test_leases_keep_their_promises(machine: type[CoordinatorMachine], examples: int) -> None:
    run(machine, examples, 50)


@pytest.mark.bench_stress
@pytest.mark.timeout(1_800)
@pytest.mark.parametrize("machine", [ManagerMachine, LedgerMachine], ids=["memory", "sqlite"])
def test_leases_keep_their_promises_in_long_lives(machine: type[CoordinatorMachine]) -> None:
    run(machine, 1_500, 120, shrink=True)
