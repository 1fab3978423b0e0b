"""Every order of calls, repetitions, losses, zombies, clock jumps and restarts, drawn by chance."""

from collections.abc import Callable, Iterable
from hashlib import sha256
from typing import Protocol, TypeVar

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from flashruntime.errors import FlashError
from flashruntime.protocol.events import Event, EventType
from flashruntime.protocol.failures import EndedBy, Evidence
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
    OutputFile,
    TaskRecord,
)
from tests.unit.leases.machine_model import LEASE_S, MAX_ERRORS, Grant, Model, Shape

T = TypeVar("T")
MAX_JOBS = 3
NODES = st.sampled_from(["w1", "w2", "w3"])
SHAPES = st.tuples(st.integers(1, 3), st.booleans())
SESSIONS = st.sampled_from(["none", "none", "current", "oldest", "new"])
TAILS = st.sampled_from(["m", "m", "m", "other", "m/below", "in", "in/x"])
SENDS = st.sampled_from([1, 1, 2])
ENDINGS = st.sampled_from(["error", *["killed", "preempted"] * 3])
ODD = st.sampled_from(["", "", "foreign", "", "digest", "none"])
BYTES = {letter: letter.encode() for letter in "ab"}
DIGEST = {letter: sha256(data).hexdigest() for letter, data in BYTES.items()}
ENDS = {
    "error": Evidence(ended_by=EndedBy.EXIT, exit_code=1, error_type="ValueError", message="no"),
    "killed": Evidence(ended_by=EndedBy.SIGNAL, signal=9, step=7),
    "preempted": Evidence(ended_by=EndedBy.STOPPED, signal=15),
}


class Port(Protocol):
    """A coordinator: its calls, and what a test alone may do to it."""

    def submit(self, spec: JobSpec, key: str | None) -> JobRecord: ...
    def cancel(self, job_id: str) -> JobRecord: ...
    def register(self, registration: NodeRegistration) -> NodeRegistered: ...
    def claim(self, request: ClaimRequest) -> Lease | None: ...
    def heartbeat(self, lease_id: str, request: HeartbeatRequest) -> LeaseStatus: ...
    def put(self, key: str, data: bytes) -> ArtifactRecord: ...
    def complete(self, lease_id: str, request: CompleteRequest) -> CompleteAnswer: ...
    def fail(self, lease_id: str, request: FailRequest) -> FailAnswer: ...
    def jobs(self) -> list[JobRecord]: ...
    def tasks(self, job_id: str) -> list[TaskRecord]: ...
    def events(self, after: int) -> list[Event]: ...
    def accepted(self, job_id: str) -> list[ArtifactRecord]: ...
    def nodes(self) -> list[NodeRecord]: ...
    def live(self, node: str) -> list[str]: ...
    def sweep(self) -> int: ...
    def session_ends(self, node: str, session_id: str | None) -> int: ...
    def now_ns(self) -> int: ...
    def advance(self, seconds: float) -> None: ...
    def jump_wall(self, seconds: float) -> None: ...
    def restart(self, reboot: bool) -> None: ...
    def close(self) -> None: ...


def spec(shape: Shape) -> JobSpec:
    tasks, required = shape
    parameters = {
        "command": ["work", "{i}"],
        "task_params": [{"i": number} for number in range(tasks)],
        "lease_seconds": LEASE_S,
        "outputs": {"required": ["m"] if required else []},
    }
    return JobSpec.model_validate({
        "apiVersion": "flashml.dev/v1alpha1",
        "kind": "Job",
        "metadata": {"name": "j"},
        "spec": {
            "workload": {"type": "command", "parameters": parameters},
            "retryPolicy": {"maxTaskAttempts": MAX_ERRORS},
        },
    })  # fmt: skip


class CoordinatorMachine(RuleBasedStateMachine):
    """Draws calls, and compares every answer and everything that can be seen with the model."""

    looks = MAX_JOBS

    def __init__(self) -> None:
        super().__init__()
        self.port = self.open()
        self.model = Model()
        self.model.now_ns = self.port.now_ns()
        self.looked = 0
        self.last_event = 0
        self.counts: dict[tuple[str | None, EventType], int] = {}
        self.claims: list[ClaimRequest] = []

    def open(self) -> Port:
        raise NotImplementedError

    def ask(self, call: Callable[[], T], sends: int = 1) -> T | FlashError:
        """Return the answer; of a call whose answer was lost and that was sent again, the last.

        Every further answer must be the first one.
        """
        answers: list[T | FlashError] = []
        for _ in range(sends):
            try:
                answers.append(call())
            except FlashError as error:
                answers.append(error)
        first, last = answers[0], answers[-1]
        if isinstance(first, FlashError):
            assert type(first) is type(last), (first, last)
        else:
            assert first == last
        return last

    @initialize(shapes=st.lists(SHAPES, min_size=1, max_size=2), claims=st.integers(0, 3))
    def begin(self, shapes: list[Shape], claims: int) -> None:
        """Most lives begin with work that is under way."""
        for number, shape in enumerate(shapes):
            self._submit(f"k{number}", shape, 1)
        for number in range(claims):
            self._claim(ClaimRequest(node_id=f"w{number + 1}", claim_id=f"first-{number}"), 1)

    @rule(shape=SHAPES, key=st.sampled_from([None, "k0", "k1", "k2"]), sends=SENDS)
    def submit(self, shape: Shape, key: str | None, sends: int) -> None:
        """Under a key that is known the same request comes again, or another one."""
        known = self.model.keys.get(key or "")
        if known is None and len(self.model.jobs) >= MAX_JOBS:
            return
        if known is not None and sends == 1:
            shape = self.model.jobs[known].shape
        self._submit(key, shape, sends if key else 1)

    def _submit(self, key: str | None, shape: Shape, sends: int) -> None:
        self.model.submit(key, shape, self.ask(lambda: self.port.submit(spec(shape), key), sends))

    @rule(node=NODES, data=st.data(), sends=SENDS, session=SESSIONS)
    def claim(self, node: str, data: st.DataObject, sends: int, session: str) -> None:
        """By a node that has registered just now, before, or twice since, or never."""
        job_id = data.draw(st.sampled_from([None, None, *self.model.jobs]))
        named = sends > 1 or data.draw(st.booleans())
        own = [held for name, held in self.model.past_sessions if name == node]
        if session == "new" or (session != "none" and not own):
            self.model.register(node, self.ask(lambda: self.port.register(_node(node))))
            own.append(self.model.sessions[node])
        session_id = None if session == "none" else own[0 if session == "oldest" else -1]
        claim_id = f"c-{len(self.claims)}" if named else None
        request = ClaimRequest(
            node_id=node, job_id=job_id, claim_id=claim_id, session_id=session_id
        )
        self._claim(request, sends)

    @precondition(lambda self: any(each.claim_id for each in self.claims))
    @rule(data=st.data(), other=NODES | st.none())
    def claim_again(self, data: st.DataObject, other: str | None) -> None:
        """A claim arrives once more, much later; under another node's name it is another claim."""
        named = [each for each in self.claims if each.claim_id]
        request = data.draw(st.sampled_from(named))
        if other is not None:
            request = request.model_copy(update={"node_id": other, "session_id": None})
        self._claim(request, 1)

    def _claim(self, request: ClaimRequest, sends: int) -> None:
        self.claims.append(request)
        self.model.claim(request, self.ask(lambda: self.port.claim(request), sends))

    def pick(self, data: st.DataObject) -> Grant:
        """Return a lease: one that is open, one that was taken over, or any that has ended."""
        by_kind: dict[str, list[Grant]] = {}
        for grant in self.model.grants():
            kind = grant.state if grant.state in {"completed", "superseded"} else "ended"
            by_kind.setdefault("open" if grant.open else kind, []).append(grant)
        return data.draw(st.sampled_from(by_kind[data.draw(st.sampled_from(sorted(by_kind)))]))

    @precondition(lambda self: any(grant.open for grant in self.model.grants()))
    @rule(data=st.data(), node=NODES, again=st.booleans())
    def taken_over(self, data: st.DataObject, node: str, again: bool) -> None:
        """A node is lost and, unless it is back before (`again`), another has its tasks."""
        still = [grant for grant in self.model.grants() if grant.open]
        grant = data.draw(st.sampled_from(still))
        self.session_ended(grant.lease.node_id, None)
        if again:
            self.beat(grant, None, 1)
        request = ClaimRequest(node_id=node, job_id=grant.lease.job_id)
        self._claim(request, 1)

    @precondition(lambda self: self.model.grants())
    @rule(data=st.data(), step=st.integers(0, 100) | st.none(), sends=SENDS)
    def heartbeat(self, data: st.DataObject, step: int | None, sends: int) -> None:
        self.beat(self.pick(data), step, sends)

    def beat(self, grant: Grant, step: int | None, sends: int) -> None:
        request = HeartbeatRequest(step=step)
        call = lambda: self.port.heartbeat(grant.lease.lease_id, request)  # noqa: E731
        self.model.heartbeat(grant, step, self.ask(call, sends))

    @precondition(lambda self: self.model.grants())
    @rule(data=st.data(), letter=st.sampled_from("ab"), tail=TAILS, sends=SENDS)
    def put(self, data: st.DataObject, letter: str, tail: str, sends: int) -> None:
        """Below the prefix of a lease, or beside them all."""
        owner = None if tail.startswith("in") else self.pick(data)
        self._put(f"{owner.lease.output_prefix}/{tail}" if owner else tail, letter, owner, sends)

    def _put(self, key: str, letter: str, owner: Grant | None, sends: int) -> None:
        answer = self.ask(lambda: self.port.put(key, BYTES[letter]), sends)
        self.model.put(key, DIGEST[letter], owner, answer)

    @precondition(lambda self: self.model.grants())
    @rule(data=st.data(), odd=ODD,
          sends=SENDS)  # fmt: skip
    def complete(self, data: st.DataObject, odd: str, sends: int) -> None:
        """Most often with what was uploaded; else with nothing, other bytes, another's bytes."""
        grant = self.pick(data)
        prefix = f"{grant.lease.output_prefix}/"
        if odd == "foreign":
            self._put("other", "a", None, 1)
        stored = self.model.objects.items()
        outputs = [_output(key, found) for key, found in stored if key.startswith(prefix)]
        foreign = [_output(key, found) for key, found in stored if not key.startswith(prefix)]
        if odd == "foreign":
            outputs += [each.model_copy(update={"path": "x"}) for each in foreign[-1:]]
        if odd == "digest":
            outputs = [each.model_copy(update={"sha256": "0" * 64}) for each in outputs]
        request = CompleteRequest(outputs=[] if odd == "none" else outputs)
        call = lambda: self.port.complete(grant.lease.lease_id, request)  # noqa: E731
        self.model.complete(grant, request, self.ask(call, sends))

    @precondition(lambda self: self.model.grants())
    @rule(data=st.data(), end=ENDINGS, sends=SENDS, waits=st.sampled_from([None, 0, 1, 60]))
    def fail(self, data: st.DataObject, end: str, sends: int, waits: int | None) -> None:
        """The same node may ask for the task again at once, or a little later."""
        grant = self.pick(data)
        request = FailRequest(reason="r", evidence=ENDS[end])
        call = lambda: self.port.fail(grant.lease.lease_id, request)  # noqa: E731
        self.model.fail(grant, ENDS[end], self.ask(call, sends))
        if waits is not None:
            self.moved(waits, 0, sweeps=True)
            lease = grant.lease
            self._claim(ClaimRequest(node_id=lease.node_id, job_id=lease.job_id), 1)

    @precondition(lambda self: len(self.model.grants()) > 3)
    @rule(data=st.data(), sends=SENDS, sure=st.sampled_from([True, False, False]))
    def cancel(self, data: st.DataObject, sends: int, sure: bool) -> None:
        if sure:
            job_id = data.draw(st.sampled_from(list(self.model.jobs)))
            self.model.cancel(job_id, self.ask(lambda: self.port.cancel(job_id), sends))

    @rule(seconds=st.floats(0, 15), hours=st.integers(-50, 50), sweeps=st.booleans())
    def time_passes(self, seconds: float, hours: int, sweeps: bool) -> None:
        """Case 111: the wall clock jumps by hours, and changes nothing."""
        self.moved(seconds, hours, sweeps=sweeps)

    def moved(self, seconds: float, hours: int, *, sweeps: bool) -> None:
        self.port.advance(seconds)
        self.port.jump_wall(hours * 3_600)
        self.model.now_ns = self.port.now_ns()
        if sweeps:
            assert self.port.sweep() == self.model.sweep()
        assert all(node.idle_s >= 0 for node in self.port.nodes())

    @rule(node=NODES, data=st.data(), one=st.booleans())
    def session_ends(self, node: str, data: st.DataObject, one: bool) -> None:
        held = [name for who, name in self.model.past_sessions if who == node]
        self.session_ended(node, data.draw(st.sampled_from(held)) if one and held else None)

    def session_ended(self, node: str, session_id: str | None) -> None:
        lost = self.model.session_ends(node, session_id)
        assert self.port.session_ends(node, session_id) == lost

    @rule(reboot=st.booleans())
    def restart(self, reboot: bool) -> None:
        """On the same clock, or after a reboot that set it back to its beginning."""
        self.port.restart(reboot)
        self.model.restart(self.port.now_ns())

    @invariant()
    def what_can_be_seen_agrees_with_the_model(self) -> None:
        """All jobs in short; of `looks` of them, in turn, every task and result too."""
        records = {record.job_id: record for record in self.port.jobs()}
        assert set(records) == set(self.model.jobs)
        for record in records.values():
            assert record.state is self.model.jobs[record.job_id].state
        names = sorted(records)
        for number in range(min(self.looks, len(names))):
            self._look(records[names[(self.looked + number) % len(names)]])
        self.looked += self.looks

    def _look(self, record: JobRecord) -> None:
        self.model.check_job(record, self.port.tasks(record.job_id))
        stored = self.port.accepted(record.job_id)
        assert all(each.accepted for each in stored)
        shown = {(each.object_key, each.sha256, each.path) for each in stored}
        assert shown == self.model.accepted(record.job_id)

    @invariant()
    def at_most_one_lease_of_a_task_is_live(self) -> None:
        live = [lease_id for node in ("w1", "w2", "w3") for lease_id in self.port.live(node)]
        assert sorted(live) == sorted(grant.lease.lease_id for grant in self.model.live())
        tasks = [grant.lease.task_id for grant in self.model.live()]
        assert len(tasks) == len(set(tasks))

    @invariant()
    def events_rise_and_tell_each_thing_once(self) -> None:
        for event in self.port.events(self.last_event):
            assert event.id > self.last_event
            self.last_event = event.id
            for name in {event.task_id, event.lease_id, event.job_id}:
                self.counts[name, event.type] = self.counts.get((name, event.type), 0) + 1
        for job_id, job in self.model.jobs.items():
            ends = self._told([job_id], "JOB_SUCCEEDED", "JOB_FAILED", "JOB_CANCELLED")
            assert ends == job.state.terminal
            for name, task in job.tasks.items():
                assert self._told([name], "TASK_COMMIT_ACCEPTED") == (task.winner is not None)
                assert self._told([name], "LEASE_CLAIMED") == len(task.grants)
                failed = sum(grant.failed is not None for grant in task.grants)
                assert self._told([name], "TASK_ATTEMPT_FAILED") == failed

    def _told(self, names: Iterable[str], *kinds: str) -> int:
        return sum(self.counts.get((name, EventType(kind)), 0) for name in names for kind in kinds)

    def teardown(self) -> None:
        """No task is lost: whoever asks long enough gets the rest of every open job done."""
        try:
            self.port.advance(10**6)
            self.model.now_ns = self.port.now_ns()
            self.port.sweep()
            self.model.sweep()
            request = ClaimRequest(node_id="last")
            while (lease := self.ask(lambda: self.port.claim(request))) is not None:
                self.model.claim(request, lease)
                grant = next(g for g in self.model.grants() if g.lease == lease)
                key = f"{grant.lease.output_prefix}/m"
                self._put(key, "a", grant, 1)
                done = CompleteRequest(outputs=[OutputFile(path="m", key=key, sha256=DIGEST["a"])])
                answer = self.ask(self._complete(grant, done))
                self.model.complete(grant, done, answer)
            assert all(job.state.terminal for job in self.model.jobs.values())
            for record in self.port.jobs():
                self._look(record)
        finally:
            self.port.close()

    def _complete(self, grant: Grant, request: CompleteRequest) -> Callable[[], CompleteAnswer]:
        return lambda: self.port.complete(grant.lease.lease_id, request)


def _output(key: str, digest: str) -> OutputFile:
    return OutputFile(path=key.rpartition("/")[2], key=key, sha256=digest)


def _node(name: str) -> NodeRegistration:
    return NodeRegistration(node_id=name, hostname="h")
