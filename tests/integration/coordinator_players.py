"""Clients that do at random whatever workers and users do, and keep account of what they were told.

A call that was not answered counts as maybe: both outcomes are allowed, until one of them is seen.
"""

import random
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from hashlib import sha256
from threading import Event, Lock
from time import monotonic, monotonic_ns
from typing import TypeVar
from uuid import uuid4

from flashruntime.client import CoordinatorClient
from flashruntime.errors import Conflict, CoordinatorUnreachable, FlashError, NotFound, Superseded
from flashruntime.protocol.failures import EndedBy, Evidence
from flashruntime.protocol.jobs import JobRecord, JobSpec, JobState
from flashruntime.protocol.nodes import NodeRegistration
from flashruntime.protocol.tasks import (
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
    TaskState,
)

T = TypeVar("T")
LEASE_S = 0.5
PATIENCE_S = 60.0
MOST_OPEN = 3
ENDS = {
    "killed": Evidence(ended_by=EndedBy.SIGNAL, signal=9),
    "preempted": Evidence(ended_by=EndedBy.STOPPED, signal=15),
}
OPEN, COMPLETED, FAILED = "open", "completed", "failed"


class Register:
    """A value with one writer: what was sent after the last value that is known may hold or not."""

    def __init__(self, value: object) -> None:
        self.sent = [value]
        self.known = 0

    def send(self, value: object) -> int:
        self.sent.append(value)
        return len(self.sent) - 1

    def ack(self, index: int) -> None:
        self.known = max(self.known, index)

    def see(self, value: object) -> None:
        """Its writer, with nothing on the way, has read what holds: from now on nothing else."""
        assert value in self.sent[self.known :], (value, self.sent, self.known)
        self.ack(self.send(value))

    def may_be(self, since: int) -> list[object]:
        """What may be read by a read that began when `known` was `since`."""
        return self.sent[since:]


@dataclass(eq=False)
class Held:
    """A lease that was given to a player, and what the player was told of it."""

    lease: Lease
    steps: Register = field(default_factory=lambda: Register(None))
    fate: Register = field(default_factory=lambda: Register(OPEN))
    objects: dict[str, Register] = field(default_factory=dict)
    beats: list[tuple[int, int]] = field(default_factory=list)
    complete: CompleteRequest | None = None
    failed: FailAnswer | None = None
    over: bool = False
    unsure: bool = False

    @property
    def usable(self) -> bool:
        return not (self.over or self.unsure) and self.fate.sent[-1] == OPEN

    def fenced(self) -> None:
        """Another has the task, or it has ended; nothing that was sent since has been done."""
        assert self.fate.sent[self.fate.known] != COMPLETED, "a winner was fenced"
        self.over = True
        self.fate.ack(self.fate.send(OPEN))


@dataclass(eq=False)
class Submitted:
    """A job that a player asked for under a key, which is its name as well."""

    key: str
    spec: JobSpec
    exists: Register = field(default_factory=lambda: Register(False))
    cancelled: Register = field(default_factory=lambda: Register(False))
    job_id: str | None = None
    ended: bool = False


@dataclass
class Book:
    """What all players were told; `generation` counts the coordinator's processes."""

    url: str
    stop: Event = field(default_factory=Event)
    up: Event = field(default_factory=Event)
    lock: Lock = field(default_factory=Lock)
    leases: dict[str, Held] = field(default_factory=dict)
    jobs: dict[str, Submitted] = field(default_factory=dict)
    touched: dict[Held | Submitted, None] = field(default_factory=dict)
    lost_claims: dict[str, int] = field(default_factory=dict)
    generation: int = 0
    answered: int = 0
    maybe: int = 0
    busy: int = 0

    def touch(self, what: Held | Submitted) -> None:
        """Note that something has changed; the newest comes last."""
        with self.lock:
            self.touched.pop(what, None)
            self.touched[what] = None


class Player:
    """One client: a worker, and a user too."""

    def __init__(self, book: Book, number: int, seed: int) -> None:
        self._book = book
        self._node = f"n{number}"
        self._draw = random.Random(f"{seed}/{number}")
        self._client = CoordinatorClient(book.url)
        self._twin = ThreadPoolExecutor(1)
        self._held: list[Held] = []
        self._jobs: list[Submitted] = []
        self._session: str | None = None
        self._moves: dict[Callable[[], None], int] = {
            self._submit: 3, self._claim: 8, self._beat: 8, self._upload: 5, self._complete: 6,
            self._fail: 2, self._late: 3, self._cancel: 1, self._register: 1, self._read: 2,
        }  # fmt: skip

    def play(self) -> None:
        """Make moves until told to stop; any answer that cannot be right raises."""
        with self._client, self._twin:
            moves, weights = list(self._moves), list(self._moves.values())
            while not self._book.stop.is_set():
                self._draw.choices(moves, weights)[0]()

    def _once(self, call: Callable[[], T], twins: float = 0.1) -> T | FlashError | None:
        """Return the answer, an error of the request, or None where nothing came back.

        Now and then the request is doubled on its way: both arrive at once and are answered alike.
        """
        twin = self._twin.submit(self._sent, call) if self._draw.random() < twins else None
        answer = self._sent(call)
        if twin is not None:
            other = twin.result()
            assert answer is None or other is None or _alike(answer, other), (answer, other)
            answer = other if (answer is None or answer == ()) and other is not None else answer
        if answer is None:
            patient = self._draw.random() < 0.8
            self._book.up.wait(5.0 if patient else self._draw.uniform(0.02, 0.5))
        return answer

    def _sent(self, call: Callable[[], T]) -> T | FlashError | None:
        with self._book.lock:
            self._book.busy += 1
        try:
            answer: T | FlashError | None = call()
        except CoordinatorUnreachable:
            answer = None
        except (Superseded, Conflict, NotFound) as error:
            answer = error
        finally:
            with self._book.lock:
                self._book.busy -= 1
        with self._book.lock:
            self._book.answered += answer is not None
            self._book.maybe += answer is None
        return answer

    def _answered(self, call: Callable[[], T], twins: float = 0.1) -> T | FlashError:
        """Repeat a call until it is answered."""
        deadline = monotonic() + PATIENCE_S
        while (answer := self._once(call, twins)) is None:
            assert monotonic() < deadline, "the coordinator did not come back"
        return answer

    def _change(self, register: Register, value: object, call: Callable[[], T]) -> T | FlashError:
        """Send a change, over and over until it is answered, and account for it."""
        index = register.send(value)
        answer = self._answered(call)
        if _done(answer):
            register.ack(index)
        return answer

    def _perhaps(
        self, held: Held, register: Register, value: object, call: Callable[[], T]
    ) -> T | FlashError | None:
        """Send a change once; without an answer, look what has become of it and leave it at that.

        Looking tells for certain only after the process that had the request is gone.
        """
        if self._draw.random() < 0.7:
            return self._change(register, value, call)
        generation = self._book.generation
        index = register.send(value)
        answer = self._once(call)
        if answer is None:
            tasks = self._answered(lambda: self._client.tasks(held.lease.job_id))
            assert isinstance(tasks, list), tasks
            if self._book.generation > generation:
                self._learn(held, tasks[held.lease.task_index])
        elif _done(answer):
            register.ack(index)
        return answer

    def _learn(self, held: Held, task: TaskRecord) -> None:
        """Take in what is shown; a task that waits may be held by a lapsed lease or by none."""
        if task.lease_id != held.lease.lease_id or task.state is TaskState.CANCELLED:
            held.over = True
            return
        held.steps.see(task.step)
        if task.state in {TaskState.COMPLETED, TaskState.FAILED}:
            held.fate.see(COMPLETED if task.state is TaskState.COMPLETED else FAILED)
        elif task.state is TaskState.LEASED:
            held.fate.see(OPEN)
        else:
            held.unsure = True

    def _submit(self) -> None:
        if sum(not job.ended for job in self._jobs) >= MOST_OPEN:
            self._again()
            return
        key = uuid4().hex
        job = Submitted(key, spec(key, self._draw.randint(1, 4)))
        self._book.jobs[key] = job
        self._book.touch(job)
        if self._draw.random() < 0.2:
            self._abandon(job)
        else:
            self._known(job, self._change(job.exists, True, lambda: self._send(job)))

    def _send(self, job: Submitted) -> JobRecord | None:
        return self._client.submit(job.spec, job.key)

    def _abandon(self, job: Submitted) -> None:
        """Send once; without an answer, look whether it is there and leave it at that."""
        generation = self._book.generation
        index = job.exists.send(True)
        answer = self._once(lambda: self._send(job))
        if answer is not None:
            job.exists.ack(index)
            self._known(job, answer)
            return
        found = self._answered(lambda: self._client.jobs(most=500))
        assert isinstance(found, list), found
        record = next((each for each in found if each.name == job.key), None)
        if record is not None:
            job.exists.see(True)
            self._known(job, record)
        elif self._book.generation > generation:
            job.exists.see(False)
            job.ended = True

    def _known(self, job: Submitted, answer: JobRecord | FlashError | None) -> None:
        assert isinstance(answer, JobRecord), answer
        assert answer.name == job.key
        assert job.job_id in {None, answer.job_id}, "one key brought two jobs"
        job.job_id = answer.job_id
        job.ended = answer.state.terminal
        self._book.touch(job)
        if job not in self._jobs:
            self._jobs.append(job)

    def _again(self) -> None:
        """A key comes once more, with the same request or with another."""
        job = self._draw.choice(self._jobs)
        if self._draw.random() < 0.5:
            self._known(job, self._answered(lambda: self._send(job)))
            return
        other = spec(job.key, 9)
        answer = self._answered(lambda: self._client.submit(other, job.key))
        assert isinstance(answer, Conflict), answer

    def _claim(self) -> None:
        claim_id = uuid4().hex if self._draw.random() < 0.9 else None
        session = self._session if self._draw.random() < 0.5 else None
        request = ClaimRequest(
            node_id=self._node, claim_id=claim_id, session_id=session, wait_s=0.05
        )
        asked = lambda: _some(self._client.claim(request))  # noqa: E731
        began_ns = monotonic_ns()
        answer = self._once(asked, 0.2 if claim_id else 0.0)
        if answer is None and claim_id is not None and self._draw.random() < 0.8:
            answer = self._answered(asked)
        if answer is None:
            lost = self._book.lost_claims
            lost[self._node] = lost.get(self._node, 0) + 1
        elif isinstance(answer, Superseded):
            assert claim_id is not None, "a new claim was told that its lease had ended"
            lost = self._book.lost_claims
            lost[self._node] = lost.get(self._node, 0) + 1
        else:
            assert isinstance(answer, tuple), answer
            for lease in answer:
                self._hold(lease, request, began_ns)

    def _hold(self, lease: Lease, request: ClaimRequest, began_ns: int) -> None:
        assert lease.lease_id not in self._book.leases, "one lease was given out twice"
        assert lease.node_id == self._node
        held = Held(lease, beats=[(began_ns, monotonic_ns())])
        self._book.leases[lease.lease_id] = held
        self._book.touch(held)
        self._held = [*self._held[-40:], held]
        if request.claim_id is not None and self._draw.random() < 0.2:
            again = self._answered(lambda: _some(self._client.claim(request)))
            if isinstance(again, Superseded):
                held.over = True
            else:
                assert isinstance(again, tuple), again
                assert [each.lease_id for each in again] == [lease.lease_id]

    def _pick(self) -> Held | None:
        usable = [held for held in self._held if held.usable]
        return self._draw.choice(usable) if usable else None

    def _beat(self) -> None:
        held = self._pick()
        if held is None:
            return
        step = len(held.steps.sent)
        request = HeartbeatRequest(step=step)
        began_ns = monotonic_ns()
        beat = lambda: self._client.heartbeat(held.lease.lease_id, request)  # noqa: E731
        answer = self._perhaps(held, held.steps, step, beat)
        if isinstance(answer, Superseded):
            held.over = True
        elif answer is not None:
            assert isinstance(answer, LeaseStatus), answer
            held.beats.append((began_ns, monotonic_ns()))
        self._book.touch(held)

    def _upload(self) -> None:
        held = self._pick()
        if held is not None:
            self._store(held, self._draw.choice(["m", "n"]))

    def _store(self, held: Held, path: str) -> None:
        data = self._draw.randbytes(self._draw.choice([3, 300, 30_000, 200_000]))
        key = f"{held.lease.output_prefix}/{path}"
        found = held.objects.setdefault(path, Register(None))
        digest = sha256(data).hexdigest()
        answer = self._change(found, digest, lambda: self._client.put_artifact(key, data))
        if isinstance(answer, Superseded):
            held.over = True
        else:
            assert not isinstance(answer, FlashError), answer
            assert answer.sha256 == digest
        self._book.touch(held)

    def _complete(self) -> None:
        held = self._pick()
        if held is None:
            return
        if "m" not in held.objects:
            self._store(held, "m")
        if held.over:
            return
        outputs = [
            OutputFile(path=path, key=f"{held.lease.output_prefix}/{path}", sha256=str(digest))
            for path, found in held.objects.items()
            if (digest := found.sent[found.known]) is not None
        ]
        held.complete = CompleteRequest(outputs=outputs, metrics={"lease": held.lease.lease_id})
        self._book.touch(held)
        answer = self._perhaps(held, held.fate, COMPLETED, lambda: self._done(held))
        if answer is not None:
            self._hear(held, answer)
        self._book.touch(held)

    def _done(self, held: Held) -> CompleteAnswer:
        assert held.complete is not None
        return self._client.complete(held.lease.lease_id, held.complete)

    def _hear(self, held: Held, answer: CompleteAnswer | FlashError) -> None:
        assert isinstance(answer, CompleteAnswer), answer
        if answer.accepted:
            held.fate.ack(len(held.fate.sent) - 1)
        else:
            held.fenced()

    def _fail(self) -> None:
        held = self._pick()
        if held is None:
            return
        request = FailRequest(reason="r", evidence=self._draw.choice(list(ENDS.values())))
        call = lambda: self._client.fail(held.lease.lease_id, request)  # noqa: E731
        self._book.touch(held)
        answer = self._perhaps(held, held.fate, FAILED, call)
        if answer is not None:
            self._decided(held, answer)

    def _decided(self, held: Held, answer: FailAnswer | FlashError) -> None:
        if isinstance(answer, Superseded):
            assert held.failed is None, "a failure that was decided upon has been forgotten"
            held.fenced()
            return
        assert isinstance(answer, FailAnswer), answer
        assert held.failed is None or held.failed == answer, "one failure was decided upon twice"
        held.failed = answer
        held.fate.ack(len(held.fate.sent) - 1)
        self._book.touch(held)

    def _late(self) -> None:
        """A call about a lease that has ended, or may have, comes again or for the first time."""
        ended = [held for held in self._held if not held.usable]
        if not ended:
            return
        held = self._draw.choice(ended)
        lease_id = held.lease.lease_id
        if held.over:
            self._in_vain(held)
        elif held.fate.sent[-1] == COMPLETED:
            self._hear(held, self._answered(lambda: self._done(held)))
        elif held.fate.sent[-1] == FAILED:
            request = FailRequest(reason="again", evidence=ENDS["killed"])
            self._decided(held, self._answered(lambda: self._client.fail(lease_id, request)))
        else:
            beat = self._answered(lambda: self._client.heartbeat(lease_id))
            held.unsure, held.over = False, isinstance(beat, Superseded)
            assert held.over or isinstance(beat, LeaseStatus), beat
        self._book.touch(held)

    def _in_vain(self, held: Held) -> None:
        """A zombie wakes up: it can neither go on, nor upload, nor win."""
        lease_id, prefix = held.lease.lease_id, held.lease.output_prefix
        beat = self._answered(lambda: self._client.heartbeat(lease_id))
        assert isinstance(beat, Superseded), beat
        put = self._answered(lambda: self._client.put_artifact(f"{prefix}/late", b"late"))
        assert isinstance(put, Superseded), put
        done = self._answered(lambda: self._client.complete(lease_id, CompleteRequest()))
        assert isinstance(done, CompleteAnswer), done
        assert not done.accepted

    def _cancel(self) -> None:
        open_jobs = [job for job in self._jobs if not job.ended and job.job_id is not None]
        if not open_jobs or self._draw.random() < 0.5:
            return
        job = self._draw.choice(open_jobs)
        name = str(job.job_id)
        self._book.touch(job)
        answer = self._change(job.cancelled, True, lambda: self._client.cancel(name))
        assert isinstance(answer, JobRecord), answer
        assert answer.state.terminal
        job.ended = True
        self._book.touch(job)

    def _register(self) -> None:
        registration = NodeRegistration(node_id=self._node)
        answer = self._answered(lambda: self._client.register(registration), 0.0)
        assert not isinstance(answer, FlashError), answer
        self._session = answer.session_id

    def _read(self) -> None:
        """What was read once stays true, too: it must have been on disk before it was shown."""
        if not self._jobs:
            return
        job = self._draw.choice(self._jobs)
        record = self._answered(lambda: self._client.job(str(job.job_id)))
        assert isinstance(record, JobRecord), record
        assert record.state.terminal or not job.ended
        assert record.state is not JobState.CANCELLED or job.cancelled.sent[-1]
        job.ended = record.state.terminal


def _done(answer: object) -> bool:
    """Whether an answer says that a change was made."""
    refused = isinstance(answer, CompleteAnswer) and not answer.accepted
    return not (refused or isinstance(answer, FlashError))


def _alike(one: object, other: object) -> bool:
    """Whether two answers to one request agree; a lease may end between the two."""
    if Superseded in {type(one), type(other)}:
        return True
    if isinstance(one, tuple) and isinstance(other, tuple):
        ids = [{lease.lease_id for lease in leases} for leases in (one, other)]
        return ids[0] == ids[1] or set() in ids
    if isinstance(one, JobRecord) and isinstance(other, JobRecord):
        return one.job_id == other.job_id
    if isinstance(one, CompleteAnswer | FailAnswer):
        return one == other
    return type(one) is type(other)


def _some(lease: Lease | None) -> tuple[Lease, ...]:
    return () if lease is None else (lease,)


def spec(name: str, tasks: int) -> JobSpec:
    parameters = {
        "command": ["work", "{i}"],
        "task_params": [{"i": number} for number in range(tasks)],
        "lease_seconds": LEASE_S,
        "outputs": {"required": ["m"]},
    }
    return JobSpec.model_validate({
        "apiVersion": "flashml.dev/v1alpha1",
        "kind": "Job",
        "metadata": {"name": name},
        "spec": {"workload": {"type": "command", "parameters": parameters}},
    })  # fmt: skip


def check_task(held: Held, since: tuple[int, int], over: bool, task: TaskRecord) -> None:
    """Assert that a task shows what its holder was told before this was read."""
    steps, fate = (held.steps.may_be(since[0]), held.fate.may_be(since[1]))
    lease = held.lease
    assert task.attempts >= lease.attempt_number, "an answered claim is gone"
    if task.lease_id != lease.lease_id:
        assert task.attempts > lease.attempt_number
        assert fate != [COMPLETED], "an accepted result has been replaced"
        return
    assert task.step in steps, (task.step, steps)
    if task.state is TaskState.COMPLETED:
        assert COMPLETED in fate, "completed, though its holder never said so"
        assert not over
        assert held.complete is not None
        assert task.metrics == {"lease": lease.lease_id}
    elif task.state in {TaskState.LEASED, TaskState.PENDING, TaskState.FAILED}:
        allowed = {TaskState.LEASED: {OPEN}, TaskState.FAILED: {FAILED}}
        assert set(fate) & allowed.get(task.state, {OPEN, FAILED}), (task.state, fate)
    else:
        assert fate != [COMPLETED], "an accepted result was cancelled"
