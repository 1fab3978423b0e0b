"""What a coordinator must do, told a second time: plain rules over dictionaries, none of its code.

Each method takes a request and the answer to it (a value, or the error raised), asserts that the
answer is a right one, and moves the model on.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field

from flashruntime.errors import Conflict, FlashError, Superseded
from flashruntime.protocol.failures import EndedBy, Evidence, RecoveryAction
from flashruntime.protocol.jobs import JobRecord, JobState
from flashruntime.protocol.nodes import NodeRegistered
from flashruntime.protocol.tasks import (
    ArtifactRecord,
    ClaimRequest,
    CompleteAnswer,
    CompleteRequest,
    FailAnswer,
    Lease,
    LeaseStatus,
    OutputFile,
    TaskRecord,
    TaskState,
)

NS = 1_000_000_000
LEASE_S = 10.0
LEASE_NS = round(LEASE_S * NS)
MAX_ERRORS = 3
SPARED_NS = 5 * NS
Shape = tuple[int, bool]


@dataclass
class Grant:
    """A lease that was given out. Open: live or lapsed; all other states are final."""

    lease: Lease
    session_id: str | None
    claim_id: str | None
    deadline_ns: int
    state: str = "live"
    step: int | None = None
    outputs: tuple[OutputFile, ...] = ()
    failed: FailAnswer | None = None

    @property
    def open(self) -> bool:
        return self.state in {"live", "lapsed"}


@dataclass
class Task:
    """A unit of work; the newest grant is the only one that can be open."""

    grants: list[Grant] = field(default_factory=list)
    state: TaskState = TaskState.PENDING
    errors: int = 0
    losses: int = 0
    not_before_ns: int = 0
    backoff_ns: int = 0
    avoid: str | None = None
    winner: Grant | None = None


@dataclass
class Job:
    """A submission; `shape` is how many tasks it has, and whether they must hand in an output."""

    shape: Shape
    tasks: dict[str, Task]
    state: JobState = JobState.PENDING

    def end(self, state: JobState) -> None:
        self.state = state
        for task in self.tasks.values():
            if not task.state.terminal:
                task.state = TaskState.CANCELLED
                for grant in task.grants[-1:]:
                    grant.state = "cancelled" if grant.open else grant.state


class Model:
    """Everything that was promised so far."""

    def __init__(self) -> None:
        self.jobs: dict[str, Job] = {}
        self.keys: dict[str, str] = {}
        self.sessions: dict[str, str] = {}
        self.past_sessions: list[tuple[str, str]] = []
        self.objects: dict[str, str] = {}
        self.now_ns = 0

    def grants(self) -> list[Grant]:
        return [grant for _, task in self.tasks() for grant in task.grants]

    def tasks(self) -> Iterator[tuple[Job, Task]]:
        for job in self.jobs.values():
            for task in job.tasks.values():
                yield job, task

    def live(self) -> list[Grant]:
        return [grant for grant in self.grants() if grant.state == "live"]

    def of(self, grant: Grant) -> tuple[Job, Task]:
        job = self.jobs[grant.lease.job_id]
        return job, job.tasks[grant.lease.task_id]

    def submit(self, key: str | None, shape: Shape, answer: JobRecord | FlashError) -> None:
        """One key gives one job; another request under it is refused."""
        known = self.keys.get(key) if key else None
        if known is not None and self.jobs[known].shape != shape:
            assert isinstance(answer, Conflict), answer
            return
        assert isinstance(answer, JobRecord), answer
        if known is not None:
            assert answer.job_id == known
            return
        assert answer.job_id not in self.jobs
        assert answer.tasks["PENDING"] == shape[0]
        names = [f"{answer.job_id}-{index:05d}" for index in range(shape[0])]
        self.jobs[answer.job_id] = Job(shape, {name: Task() for name in names})
        if key:
            self.keys[key] = answer.job_id

    def register(self, node: str, answer: NodeRegistered | FlashError) -> None:
        """Each registration is a session of its own and ends the older one's rights."""
        assert isinstance(answer, NodeRegistered), answer
        assert answer.session_id not in {session for _, session in self.past_sessions}
        self.sessions[node] = answer.session_id
        self.past_sessions.append((node, answer.session_id))

    def claim(self, request: ClaimRequest, answer: Lease | FlashError | None) -> None:
        """One lease a claim id; one open lease a task; what is due is given out."""
        if request.session_id is not None and request.session_id != self.sessions[request.node_id]:
            assert isinstance(answer, Superseded), answer
            return
        before = self._claimed_by(request)
        if before is not None and not before.open:
            assert isinstance(answer, Superseded), answer
        elif before is not None:
            assert isinstance(answer, Lease), answer
            assert answer.lease_id == before.lease.lease_id
            self._renew(before)
        elif answer is None:
            held_back = [self._spared(task, request.node_id) for task in self._due(request)]
            assert all(held_back), "a task that was due was not given out"
        else:
            assert isinstance(answer, Lease), answer
            self._grant(request, answer)

    def _claimed_by(self, request: ClaimRequest) -> Grant | None:
        if request.claim_id is None:
            return None
        name = (request.node_id, request.claim_id)
        found = [g for g in self.grants() if (g.lease.node_id, g.claim_id) == name]
        assert len(found) <= 1
        return found[0] if found else None

    def _due(self, request: ClaimRequest) -> list[Task]:
        return [
            task
            for job_id, job in self.jobs.items()
            for task in job.tasks.values()
            if request.job_id in {None, job_id}
            and task.state is TaskState.PENDING
            and task.not_before_ns <= self.now_ns
        ]

    def _spared(self, task: Task, node: str) -> bool:
        """Whether a task may wait a little for a node other than the one that failed it."""
        return task.avoid == node and self.now_ns < task.not_before_ns + SPARED_NS

    def _grant(self, request: ClaimRequest, lease: Lease) -> None:
        assert lease.lease_id not in {grant.lease.lease_id for grant in self.grants()}
        task = self.jobs[lease.job_id].tasks[lease.task_id]
        assert any(task is due for due in self._due(request)), "given out though it was not due"
        assert lease.attempt_number == len(task.grants) + 1
        assert lease.commit_key.startswith(f"{lease.output_prefix}/")
        assert lease.lease_id in lease.output_prefix
        for previous in task.grants[-1:]:
            if previous.state == "lapsed":
                previous.state = "superseded"
                task.losses += 1
        task.not_before_ns, task.backoff_ns, task.avoid = 0, 0, None
        task.grants.append(Grant(lease, request.session_id, request.claim_id, 0))
        self._renew(task.grants[-1])
        self.jobs[lease.job_id].state = JobState.RUNNING

    def _renew(self, grant: Grant) -> None:
        grant.state, grant.deadline_ns = "live", self.now_ns + LEASE_NS
        self.of(grant)[1].state = TaskState.LEASED

    def heartbeat(self, grant: Grant, step: int | None, answer: LeaseStatus | FlashError) -> None:
        """A late holder that nobody has replaced goes on; a fenced one must stop."""
        if grant.state == "completed":
            assert isinstance(answer, LeaseStatus), answer
        elif not grant.open:
            assert isinstance(answer, Superseded), answer
        else:
            assert isinstance(answer, LeaseStatus), answer
            grant.step = grant.step if step is None else step
            self._renew(grant)

    def put(
        self, key: str, sha256: str, owner: Grant | None, answer: ArtifactRecord | FlashError
    ) -> None:
        """A holder writes below its own prefix; what is accepted stays for ever."""
        if owner is not None and owner.state == "completed":
            accepted = {output.key: output.sha256 for output in owner.outputs}
            right = ArtifactRecord if accepted.get(key) == sha256 else Conflict
            assert isinstance(answer, right), answer
        elif owner is not None and not owner.open:
            assert isinstance(answer, Superseded), answer
        elif any(a != key and _nested(a, key) for a in self.objects):
            assert isinstance(answer, Conflict), answer
        else:
            assert isinstance(answer, ArtifactRecord), answer
            assert (answer.object_key, answer.sha256) == (key, sha256)
            self.objects[key] = sha256

    def complete(
        self, grant: Grant, request: CompleteRequest, answer: CompleteAnswer | FlashError
    ) -> None:
        """Exactly one result a task; the winner hears the same again, anybody else a refusal."""
        job, task = self.of(grant)
        outputs = tuple(request.outputs or ())
        stored = all(
            self.objects.get(output.key) == output.sha256
            and output.key.startswith(f"{grant.lease.output_prefix}/")
            for output in outputs
        )
        if grant.state == "completed":
            same = {(o.path, o.key, o.sha256) for o in outputs} == {
                (o.path, o.key, o.sha256) for o in grant.outputs
            }
            assert isinstance(answer, CompleteAnswer if same and stored else Conflict), answer
        elif not grant.open:
            assert isinstance(answer, CompleteAnswer), answer
            assert not answer.accepted
        elif not stored or (job.shape[1] and "m" not in {output.path for output in outputs}):
            assert isinstance(answer, Conflict), answer
        else:
            assert isinstance(answer, CompleteAnswer), answer
            assert answer.accepted
            assert task.winner is None
            grant.state, grant.outputs = "completed", outputs
            task.state, task.winner = TaskState.COMPLETED, grant
            if all(each.winner for each in job.tasks.values()):
                job.end(JobState.SUCCEEDED)

    def fail(self, grant: Grant, evidence: Evidence, answer: FailAnswer | FlashError) -> None:
        """The first decision stands; preemptions cost nothing, the user's errors do."""
        job, task = self.of(grant)
        if grant.failed is not None:
            assert answer == grant.failed
        elif not grant.open:
            assert isinstance(answer, Conflict if grant.state == "completed" else Superseded)
        else:
            assert isinstance(answer, FailAnswer), answer
            free = evidence.ended_by is EndedBy.STOPPED
            tries = free or (evidence.error_type is None and task.errors + 1 < MAX_ERRORS)
            decision = answer.decision
            assert (decision.counts_as_error, decision.retries) == (not free, tries)
            assert answer.task_state is (TaskState.PENDING if tries else TaskState.FAILED)
            grant.state, grant.failed = "failed", answer
            grant.step = grant.step if evidence.step is None else evidence.step
            task.errors += not free
            task.losses += free
            task.state = answer.task_state
            if not tries:
                job.end(JobState.FAILED)
                return
            task.backoff_ns = max(1, round(decision.backoff_s * NS))
            task.not_before_ns = self.now_ns + task.backoff_ns
            replaced = decision.action is RecoveryAction.REPLACE_NODE
            task.avoid = grant.lease.node_id if replaced or not free else None

    def cancel(self, job_id: str, answer: JobRecord | FlashError) -> None:
        """An open job ends; one that has ended stays as it is."""
        job = self.jobs[job_id]
        if not job.state.terminal:
            job.end(JobState.CANCELLED)
        assert isinstance(answer, JobRecord), answer
        assert answer.state is job.state

    def sweep(self) -> int:
        """What is past its deadline becomes claimable, and is not yet fenced."""
        return self._lapse([g for g in self.live() if g.deadline_ns < self.now_ns])

    def session_ends(self, node: str, session_id: str | None) -> int:
        """So does what a lost node holds, or one of its sessions."""
        held = [g for g in self.live() if g.lease.node_id == node]
        return self._lapse([g for g in held if session_id in {None, g.session_id}])

    def _lapse(self, lost: list[Grant]) -> int:
        for grant in lost:
            grant.state = "lapsed"
            self.of(grant)[1].state = TaskState.PENDING
        return len(lost)

    def restart(self, now_ns: int) -> None:
        """Every live lease and every waiting task has its full time again."""
        self.now_ns = now_ns
        for grant in self.live():
            grant.deadline_ns = now_ns + LEASE_NS
        for _, task in self.tasks():
            if task.state is TaskState.PENDING and task.backoff_ns:
                task.not_before_ns = now_ns + task.backoff_ns

    def check_job(self, record: JobRecord, tasks: list[TaskRecord]) -> None:
        """A job and its tasks are shown as they are, and counts agree with states."""
        job = self.jobs[record.job_id]
        assert record.state is job.state
        assert sum(record.tasks.values()) == len(tasks) == job.shape[0]
        for state in TaskState:
            assert record.tasks[state.value] == sum(t.state is state for t in job.tasks.values())
        for shown, (name, task) in zip(tasks, job.tasks.items(), strict=True):
            newest = task.grants[-1] if task.grants else None
            assert shown.task_id == name
            assert shown.state is task.state, name
            assert (shown.attempts, shown.errors, shown.losses) == (
                len(task.grants),
                task.errors,
                task.losses,
            )
            assert shown.lease_id == (newest and newest.lease.lease_id)
            assert shown.step == (newest and newest.step)
            assert shown.outputs == list(task.winner.outputs if task.winner else ())

    def accepted(self, job_id: str) -> set[tuple[str, str, str | None]]:
        """What the results of a job consist of: key, digest, path."""
        winners = [task.winner for task in self.jobs[job_id].tasks.values() if task.winner]
        return {(o.key, o.sha256, o.path) for winner in winners for o in winner.outputs}


def _nested(one: str, other: str) -> bool:
    return one.startswith(f"{other}/") or other.startswith(f"{one}/")
