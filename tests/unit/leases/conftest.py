"""A small world around a manager, on each store."""

from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from flashruntime.leases.manager import LeaseManager
from flashruntime.leases.memory import MemoryStore
from flashruntime.leases.record import Submission
from flashruntime.leases.sqlite import SqliteStore
from flashruntime.leases.store import LeaseStore
from flashruntime.protocol.failures import (
    Decision,
    EndedBy,
    Evidence,
    FailureClass,
    History,
    RecoveryAction,
)
from flashruntime.protocol.jobs import JobRecord, JobSpec, Outputs
from flashruntime.protocol.tasks import (
    ClaimRequest,
    CompleteAnswer,
    CompleteRequest,
    FailAnswer,
    FailRequest,
    HeartbeatRequest,
    Lease,
    OutputFile,
    TaskPayload,
    TaskRecord,
)

SHA = {letter: letter * 64 for letter in "abc"}
LEASE_S = 10.0


class Time:
    """A clock that stands still until it is moved."""

    def __init__(self) -> None:
        self.mono_ns = 10**12
        self.wall = datetime(2026, 1, 1, tzinfo=UTC)

    def monotonic_ns(self) -> int:
        return self.mono_ns

    def utc_now(self) -> datetime:
        return self.wall

    def advance(self, seconds: float) -> None:
        self.mono_ns += round(seconds * 10**9)
        self.wall += timedelta(seconds=seconds)


def spec(max_attempts: int = 3) -> JobSpec:
    return JobSpec.model_validate(
        {
            "apiVersion": "flashml.dev/v1alpha1",
            "kind": "Job",
            "metadata": {"name": "a job"},
            "spec": {
                "workload": {"type": "command", "parameters": {"command": ["true"]}},
                "retryPolicy": {"maxTaskAttempts": max_attempts},
            },
        }
    )


def retry(backoff_s: float = 0.0, counts: bool = True) -> Callable[..., Decision]:
    """A policy that always retries."""
    return _policy(RecoveryAction.RETRY_TASK, backoff_s, counts)


def stop(exhausted: bool = False) -> Callable[..., Decision]:
    """A policy that always gives up."""
    return _policy(RecoveryAction.FAIL_JOB, 0.0, True, exhausted)


def _policy(
    action: RecoveryAction, backoff_s: float, counts: bool, exhausted: bool = False
) -> Callable[..., Decision]:
    def decide(evidence: Evidence, history: History, task: str, node: str) -> Decision:
        return Decision(
            failure_class=FailureClass.UNKNOWN,
            action=action,
            counts_as_error=counts,
            exhausted=exhausted,
            backoff_s=backoff_s,
            reason=f"decided after {history.errors} errors, repeated={history.repeated}",
            policy_version="test",
        )

    return decide


class World:
    """A manager with its clock and store, and the calls that tests make most."""

    def __init__(self, open_store: Callable[[], LeaseStore]) -> None:
        self.time = Time()
        self._open_store = open_store
        self.store = open_store()
        self.manager = LeaseManager(self.store, self.time)
        self.manager.start()

    def restart(self, mono_ns: int | None = None) -> None:
        """End the coordinator and start another on the same ledger, after a reboot if told so."""
        if isinstance(self.store, SqliteStore):
            self.store.close()
            self.store = self._open_store()
        if mono_ns is not None:
            self.time.mono_ns = mono_ns
        self.manager = LeaseManager(self.store, self.time)
        self.manager.start()

    def submit(
        self,
        tasks: int = 1,
        job_id: str = "job-1",
        *,
        required: tuple[str, ...] = (),
        key: str | None = None,
        digest: str = "d",
        max_attempts: int = 3,
    ) -> JobRecord:
        payload = TaskPayload(
            type="command", command=["true"], outputs=Outputs(required=[*required])
        )
        submission = Submission(
            job_id, spec(max_attempts), (payload,) * tasks, LEASE_S, key, digest
        )
        return self.manager.submit(submission)[0]

    def claim(self, node: str = "w1", **more: str) -> Lease:
        lease = self.manager.claim(ClaimRequest(node_id=node, **more))
        assert lease is not None
        return lease

    def idle(self, node: str = "w1") -> bool:
        return self.manager.claim(ClaimRequest(node_id=node)) is None

    def lapse(self) -> int:
        """Let all leases run out."""
        self.time.advance(LEASE_S + 0.001)
        return self.manager.sweep()

    def beat(self, lease: Lease, step: int | None = None) -> None:
        self.manager.heartbeat(lease.lease_id, HeartbeatRequest(step=step))

    def upload(self, lease: Lease, path: str = "model.bin", letter: str = "a") -> OutputFile:
        key = f"{lease.output_prefix}/{path}"
        self.manager.put_object(key, SHA[letter], 3, None)
        return OutputFile(path=path, key=key, sha256=SHA[letter])

    def complete(self, lease: Lease, *outputs: OutputFile) -> CompleteAnswer:
        return self.manager.complete(lease.lease_id, CompleteRequest(outputs=list(outputs)))

    def fail(
        self, lease: Lease, decide: Callable[..., Decision], step: int | None = None
    ) -> FailAnswer:
        evidence = Evidence(ended_by=EndedBy.EXIT, exit_code=1, step=step)
        return self.manager.fail(
            lease.lease_id, FailRequest(reason="it broke", evidence=evidence), decide
        )

    def task(self, index: int = 0, job_id: str = "job-1") -> TaskRecord:
        return self.manager.tasks(job_id, index - 1, 1).items[0]

    def kinds(self, job_id: str | None = None) -> list[str]:
        return [event.type.value for event in self.manager.events(job_id, 0, 10_000).items]

    def count(self, kind: str) -> int:
        return self.kinds().count(kind)


@pytest.fixture(params=["memory", "sqlite"])
def open_store(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[[], LeaseStore]:
    if request.param == "memory":
        return MemoryStore
    return lambda: SqliteStore(tmp_path / "ledger" / "ledger.sqlite3")


@pytest.fixture
def world(open_store: Callable[[], LeaseStore]) -> Iterator[World]:
    made = World(open_store)
    yield made
    made.store.close()


@pytest.fixture
def policies() -> "type[Policies]":
    return Policies


class Policies:
    """Decisions for tests."""

    retry = staticmethod(retry)
    stop = staticmethod(stop)
