"""A lease that arrives while the worker is leaving goes back."""

import errno
from collections.abc import Callable
from contextlib import nullcontext
from datetime import UTC, datetime
from pathlib import Path
from threading import Event
from typing import cast

from flashruntime.config import WorkerSettings
from flashruntime.errors import CoordinatorUnreachable
from flashruntime.launch.local import LocalLauncher
from flashruntime.launch.spec import LaunchSpec, Process
from flashruntime.protocol.failures import Decision, EndedBy, FailureClass, RecoveryAction
from flashruntime.protocol.nodes import NodeRegistered, NodeRegistration
from flashruntime.protocol.tasks import (
    ClaimRequest,
    FailAnswer,
    FailRequest,
    Lease,
    TaskPayload,
    TaskState,
)
from flashruntime.recovery import classify
from flashruntime.worker.agent import Agent
from flashruntime.worker.control import StopRequest
from flashruntime.worker.ports import Coordinator, Tools

LEASE = Lease(
    lease_id="lease-1",
    task_id="job-1-00000",
    job_id="job-1",
    task_index=0,
    node_id="n",
    attempt_number=1,
    lease_seconds=30,
    deadline=datetime.now(UTC),
    commit_key="outputs/a",
    output_prefix="outputs",
    payload=TaskPayload(type="command", command=["false"]),
)
DECISION = Decision(
    failure_class=FailureClass.PREEMPTION,
    action=RecoveryAction.RETRY_TASK,
    counts_as_error=False,
    reason="",
    policy_version="1",
)


class Coordinated:
    """Gives out a lease at the very moment the worker is asked to leave."""

    def __init__(self, stop: StopRequest) -> None:
        self._stop = stop
        self.failed: list[tuple[str, FailRequest]] = []

    def register(self, registration: NodeRegistration) -> NodeRegistered:
        return NodeRegistered(node_id="n", status="ready", session_id="s")

    def claim(self, request: ClaimRequest) -> Lease:
        self._stop.request()
        return LEASE

    def fail(self, lease_id: str, request: FailRequest) -> FailAnswer:
        self.failed.append((lease_id, request))
        return FailAnswer(decision=DECISION, task_state=TaskState.PENDING)


def agent_of(tmp_path: Path, stop: StopRequest, client: object) -> Agent:
    settings = WorkerSettings("http://x", tmp_path / "ckpt", tmp_path / "work", "n")
    coordinator = cast(Coordinator, client)
    tools = Tools(coordinator, lambda _: nullcontext(coordinator), LocalLauncher())
    return Agent(settings, tools, stop, {})


def test_a_lease_that_arrives_while_leaving_is_handed_back_and_not_run(tmp_path: Path) -> None:
    stop = StopRequest(5.0)
    client = Coordinated(stop)
    agent_of(tmp_path, stop, client).run()
    ((lease_id, request),) = client.failed
    assert lease_id == "lease-1"
    assert request.evidence is not None
    assert request.evidence.ended_by is EndedBy.STOPPED
    assert not (tmp_path / "work/agents/n").exists()


class Silent(Coordinated):
    """Never answers a claim."""

    def claim(self, request: ClaimRequest) -> Lease:
        self._stop.request()
        Event().wait()
        raise AssertionError


def test_a_long_poll_does_not_hold_up_a_worker_that_leaves(tmp_path: Path) -> None:
    stop = StopRequest(5.0)
    client = Silent(stop)
    agent_of(tmp_path, stop, client).run()
    assert client.failed == []
    assert stop.remaining_s() > 3.0


class Forgetful(Coordinated):
    """Loses the answers to the first two claims."""

    def __init__(self, stop: StopRequest) -> None:
        super().__init__(stop)
        self.claim_ids: list[str | None] = []

    def claim(self, request: ClaimRequest) -> Lease:
        self.claim_ids.append(request.claim_id)
        if len(self.claim_ids) < 3:
            raise CoordinatorUnreachable
        return super().claim(request)


def test_a_claim_whose_answer_was_lost_is_repeated_under_the_same_id(tmp_path: Path) -> None:
    """Otherwise the lease that was given would lie idle until it lapses."""
    stop = StopRequest(5.0)
    client = Forgetful(stop)
    agent_of(tmp_path, stop, client).run()
    assert len(client.claim_ids) == 3
    assert len(set(client.claim_ids)) == 1


class NoRoom:
    """Cannot start anything: the disk is full."""

    def launch(self, spec: LaunchSpec, on_end: Callable[[], None]) -> Process:
        raise OSError(errno.ENOSPC, "No space left on device")


def test_a_full_disk_of_the_worker_is_reported_as_what_it_is(tmp_path: Path) -> None:
    stop = StopRequest(5.0)

    class Once(Coordinated):
        def claim(self, request: ClaimRequest) -> Lease:
            return LEASE

        def fail(self, lease_id: str, request: FailRequest) -> FailAnswer:
            stop.request()
            return super().fail(lease_id, request)

    client = Once(stop)
    settings = WorkerSettings("http://x", tmp_path / "ckpt", tmp_path / "work", "n")
    coordinator = cast(Coordinator, client)
    tools = Tools(coordinator, lambda _: nullcontext(coordinator), NoRoom())
    Agent(settings, tools, stop, {}).run()
    ((_, request),) = client.failed
    assert request.evidence is not None
    assert classify(request.evidence)[0] is FailureClass.RESOURCE_EXHAUSTED
