"""Any order of calls, losses, zombies, clock jumps and restarts keeps the promises of a lease."""

import shutil
import tempfile
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from flashruntime.errors import Conflict, Superseded
from flashruntime.leases.manager import LeaseManager
from flashruntime.leases.memory import MemoryStore
from flashruntime.leases.record import Submission
from flashruntime.leases.sqlite import SqliteStore
from flashruntime.leases.store import LeaseStore
from flashruntime.protocol.failures import (
    Decision,
    Evidence,
    FailureClass,
    History,
    RecoveryAction,
)
from flashruntime.protocol.jobs import JobSpec, JobState
from flashruntime.protocol.tasks import (
    ClaimRequest,
    CompleteRequest,
    FailRequest,
    HeartbeatRequest,
    Lease,
    OutputFile,
    TaskState,
)
from flashruntime.protocol.tasks import TaskPayload as Payload

TASKS = 3
LEASE_S = 10.0
NODES = st.sampled_from(["w1", "w2", "w3"])
SPEC = JobSpec.model_validate(
    {
        "apiVersion": "flashml.dev/v1alpha1",
        "kind": "Job",
        "metadata": {"name": "j"},
        "spec": {"workload": {"type": "command", "parameters": {"command": ["true"]}}},
    }
)


class Time:
    """Monotonic and wall time that move apart."""

    mono_ns = 10**12
    wall = datetime(2026, 1, 1, tzinfo=UTC)

    def monotonic_ns(self) -> int:
        return self.mono_ns

    def utc_now(self) -> datetime:
        return self.wall


@dataclass
class Granted:
    """What the model knows of a lease that was given out."""

    lease: Lease
    deadline_ns: int
    lapsed: bool = False
    ended: str | None = None
    complete: CompleteRequest | None = None
    decision: Decision | None = None


@dataclass
class Modelled:
    """What the model knows of a task: who holds it, and the one accepted lease."""

    grants: list[Granted] = field(default_factory=list)
    winner: str | None = None
    failed: bool = False

    @property
    def holder(self) -> Granted | None:
        newest = self.grants[-1] if self.grants else None
        return newest if newest is not None and newest.ended in {None, "completed"} else None


class LeaseMachine(RuleBasedStateMachine):
    """One job of a few tasks against a plain model."""

    def __init__(self) -> None:
        super().__init__()
        self.time = Time()
        self.store = self.open()
        self.manager = LeaseManager(self.store, self.time)
        self.tasks: dict[str, Modelled] = {}
        self.cancelled = False
        self.claims = 0

    def open(self) -> LeaseStore:
        return MemoryStore()

    def reopen(self) -> LeaseStore:
        return self.store

    @initialize()
    def submit(self) -> None:
        self.manager.start()
        payloads = (Payload(type="command"),) * TASKS
        job, _ = self.manager.submit(Submission("job", SPEC, payloads, LEASE_S, "key", "d"))
        self.tasks = {f"job-{i:05d}": Modelled() for i in range(TASKS)}
        again, created = self.manager.submit(Submission("x", SPEC, payloads, LEASE_S, "key", "d"))
        assert (again, created) == (job, False)

    @property
    def over(self) -> bool:
        done = all(task.winner for task in self.tasks.values())
        return self.cancelled or done or any(task.failed for task in self.tasks.values())

    def grants(self) -> list[Granted]:
        return [granted for task in self.tasks.values() for granted in task.grants]

    def pick(self, data: st.DataObject) -> tuple[Modelled, Granted]:
        granted = data.draw(st.sampled_from(self.grants()))
        return self.tasks[granted.lease.task_id], granted

    def may_act(self, task: Modelled, granted: Granted) -> bool:
        return task.holder is granted and (granted.ended == "completed" or not self.over)

    @rule(node=NODES, twice=st.booleans())
    def claim(self, node: str, twice: bool) -> None:
        self.claims += 1
        request = ClaimRequest(node_id=node, claim_id=f"c-{self.claims}")
        lease = self.manager.claim(request)
        free = [
            name
            for name, task in self.tasks.items()
            if task.winner is None and (task.holder is None or task.holder.lapsed)
        ]
        if lease is None:
            assert self.over or not free or self.waiting(free, node)
            return
        assert not self.over
        assert lease.task_id in free
        task = self.tasks[lease.task_id]
        assert lease.attempt_number == len(task.grants) + 1
        if task.holder is not None:
            task.holder.ended = "superseded"
        task.grants.append(Granted(lease, self.time.mono_ns + round(LEASE_S * 1e9)))
        if twice:
            again = self.manager.claim(request)
            assert again is not None
            assert again.lease_id == lease.lease_id

    def waiting(self, free: list[str], node: str) -> bool:
        """A failed task may wait for its time, and for a node other than the one that failed it."""
        newest = [self.tasks[name].grants[-1:] for name in free]
        return all(grants and grants[0].ended == "failed" for grants in newest)

    @precondition(lambda self: self.grants())
    @rule(data=st.data(), step=st.integers(0, 100) | st.none())
    def heartbeat(self, data: st.DataObject, step: int | None) -> None:
        task, granted = self.pick(data)
        request = HeartbeatRequest(step=step)
        if not self.may_act(task, granted):
            before = self.manager.tasks("job", None, 10)
            with pytest.raises(Superseded):
                self.manager.heartbeat(granted.lease.lease_id, request)
            assert self.manager.tasks("job", None, 10) == before
            return
        self.manager.heartbeat(granted.lease.lease_id, request)
        granted.lapsed = False
        granted.deadline_ns = self.time.mono_ns + round(LEASE_S * 1e9)

    @precondition(lambda self: self.grants())
    @rule(data=st.data(), upload=st.booleans(), letter=st.sampled_from("ab"))
    def complete(self, data: st.DataObject, upload: bool, letter: str) -> None:
        task, granted = self.pick(data)
        lease = granted.lease
        key = f"{lease.output_prefix}/m"
        if upload and granted.ended != "completed":
            self.upload(task, granted, key, letter * 64)
        output = OutputFile(path="m", key=key, sha256=letter * 64)
        request = granted.complete or CompleteRequest(outputs=[output])
        before = self.manager.tasks("job", None, 10)
        try:
            answer = self.manager.complete(lease.lease_id, request)
        except Conflict:
            assert self.may_act(task, granted)
            assert self.manager.tasks("job", None, 10) == before
            return
        if not self.may_act(task, granted):
            assert not answer.accepted
            assert self.manager.tasks("job", None, 10) == before
            return
        assert answer.accepted
        granted.ended, granted.complete = "completed", request
        assert task.winner in {None, lease.lease_id}
        task.winner = lease.lease_id
        assert self.manager.complete(lease.lease_id, request) == answer

    def upload(self, task: Modelled, granted: Granted, key: str, sha256: str) -> None:
        if self.may_act(task, granted):
            self.manager.put_object(key, sha256, 1, granted.lease.lease_id)
        else:
            with pytest.raises(Superseded):
                self.manager.put_object(key, sha256, 1, None)

    @precondition(lambda self: self.grants())
    @rule(data=st.data(), counts=st.booleans(), fatal=st.sampled_from([True, *[False] * 9]))
    def fail(self, data: st.DataObject, counts: bool, fatal: bool) -> None:
        task, granted = self.pick(data)
        decision = Decision(
            failure_class=FailureClass.UNKNOWN,
            action=RecoveryAction.FAIL_JOB if fatal else RecoveryAction.RETRY_TASK,
            counts_as_error=counts,
            backoff_s=2.0 if counts else 0.0,
            reason="r",
            policy_version="1",
        )

        def decide(evidence: Evidence, history: History, task: str, node: str) -> Decision:
            return decision

        request = FailRequest(reason="r")
        lease_id = granted.lease.lease_id
        if granted.decision is not None:
            answer = self.manager.fail(lease_id, request, decide)
            assert answer.decision == granted.decision
        elif granted.ended == "completed":
            with pytest.raises(Conflict):
                self.manager.fail(lease_id, request, decide)
        elif not self.may_act(task, granted):
            with pytest.raises(Superseded):
                self.manager.fail(lease_id, request, decide)
        else:
            self.manager.fail(lease_id, request, decide)
            granted.ended, granted.decision = "failed", decision
            task.failed = fatal

    @rule(seconds=st.floats(0, 15))
    def time_passes(self, seconds: float) -> None:
        self.time.mono_ns += round(seconds * 1e9)

    @rule(hours=st.integers(-5, 5))
    def wall_clock_jumps(self, hours: int) -> None:
        self.time.wall += timedelta(hours=hours)

    @rule()
    def sweep(self) -> None:
        due = [
            granted
            for granted in self.live()
            if not self.over and granted.deadline_ns < self.time.mono_ns
        ]
        assert self.manager.sweep() == len(due)
        for granted in due:
            granted.lapsed = True

    @rule(node=NODES)
    def session_ends(self, node: str) -> None:
        lost = [g for g in self.live() if not self.over and g.lease.node_id == node]
        assert self.manager.lapse_node(node, None) == len(lost)
        for granted in lost:
            granted.lapsed = True

    def live(self) -> list[Granted]:
        return [g for g in self.grants() if g.ended is None and not g.lapsed]

    @rule(data=st.data())
    def restart(self, data: st.DataObject) -> None:
        self.store = self.reopen()
        self.time.mono_ns = data.draw(st.integers(0, 2 * 10**12), "clock after the restart")
        self.manager = LeaseManager(self.store, self.time)
        self.manager.start()
        for granted in self.live():
            granted.deadline_ns = self.time.mono_ns + round(LEASE_S * 1e9)

    @precondition(lambda self: len(self.grants()) > 4)
    @rule(sure=st.sampled_from([True, False, False, False]))
    def cancel(self, sure: bool) -> None:
        if sure:
            self.manager.cancel_job("job")
            self.cancelled = self.cancelled or not self.over

    @invariant()
    def promises_hold(self) -> None:
        if not self.tasks:
            return
        records = self.manager.tasks("job", None, 10).items
        job = self.manager.job("job")
        assert sum(job.tasks.values()) == len(records) == TASKS
        for state in TaskState:
            assert job.tasks[state.value] == sum(record.state is state for record in records)
        assert job.state.terminal == self.over
        events = self.manager.events("job", 0, 10_000).items
        for record in records:
            task = self.tasks[record.task_id]
            self._check_task(task, record.state)
            kinds = [e.type.value for e in events if e.task_id == record.task_id]
            assert kinds.count("TASK_COMMIT_ACCEPTED") == (task.winner is not None)
            assert kinds.count("LEASE_CLAIMED") == len(task.grants)

    def _check_task(self, task: Modelled, state: TaskState) -> None:
        if task.winner is not None:
            assert state is TaskState.COMPLETED
        elif task.failed:
            assert state is TaskState.FAILED
        elif self.over:
            assert state is TaskState.CANCELLED
        elif task.holder is None or task.holder.lapsed:
            assert state is TaskState.PENDING
        else:
            assert state is TaskState.LEASED

    def teardown(self) -> None:
        """No task is lost: whoever asks long enough gets the rest of the job done."""
        if self.tasks and not self.over:
            self.time.mono_ns += 10**12
            self.manager.sweep()
            while (lease := self.manager.claim(ClaimRequest(node_id="last"))) is not None:
                assert self.manager.complete(lease.lease_id, CompleteRequest()).accepted
            assert self.manager.job("job").state is JobState.SUCCEEDED
        self.store.close()


class SqliteLeaseMachine(LeaseMachine):
    """The same on disk; a restart closes and opens the file."""

    def open(self) -> LeaseStore:
        self.folder = Path(tempfile.mkdtemp())
        return SqliteStore(self.folder / "ledger.sqlite3")

    def reopen(self) -> LeaseStore:
        self.store.close()
        return SqliteStore(self.folder / "ledger.sqlite3")

    def teardown(self) -> None:
        super().teardown()
        shutil.rmtree(self.folder)


@pytest.mark.parametrize(
    ("machine", "examples"),
    [(LeaseMachine, 100), (SqliteLeaseMachine, 25)],
    ids=["memory", "sqlite"],
)
def test_leases_keep_their_promises(machine: type[LeaseMachine], examples: int) -> None:
    run_state_machine_as_test(  # type: ignore[no-untyped-call]
        machine,
        settings=settings(
            max_examples=examples,
            stateful_step_count=40,
            deadline=None,
            suppress_health_check=list(HealthCheck),
        ),
    )
