"""The values of the harness: what is planned, what is seen, what is found.

ChaosError
  UsageError   the caller asked for something that does not exist (exit 2)
  CannotRun    the machine cannot run it; the message says what to do (exit 4)
  NotOurs      a target without the label of this run: never touched
  NoTarget     nothing matches the symbolic target at this moment
  Unreachable  the system under test gives no answer, as it may while it is hurt
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TypeAlias

JsonValue: TypeAlias = "bool | int | float | str | list[JsonValue] | dict[str, JsonValue] | None"
JsonMap: TypeAlias = Mapping[str, JsonValue]


class ChaosError(Exception):
    """The harness failed."""


class UsageError(ChaosError):
    """The caller asked for something that does not exist."""


class CannotRun(ChaosError):
    """The machine cannot run it; the message says what to do."""


class NotOurs(ChaosError):
    """The target does not carry the label of this run."""


class NoTarget(ChaosError):
    """Nothing matches the symbolic target at this moment."""


class Unreachable(ChaosError):
    """The system under test gives no answer."""


class Verdict(StrEnum):
    """What a judge says; of several the worst counts, in the order of `worst`."""

    VALID = "valid"
    VIOLATED = "violated"
    UNKNOWN = "unknown"

    @staticmethod
    def worst(verdicts: "list[Verdict]") -> "Verdict":
        """Return violated before unknown before valid; nothing judged is unknown."""
        for verdict in (Verdict.VIOLATED, Verdict.UNKNOWN, Verdict.VALID):
            if verdict in verdicts:
                return verdict
        return Verdict.UNKNOWN


class Landed(StrEnum):
    """Whether a fault did what it was meant to do, by evidence."""

    LANDED = "landed"
    MISSED = "missed"
    INCONCLUSIVE = "inconclusive"


class Comeback(StrEnum):
    """When what a fault took away is put back: its undos are carried out at that moment."""

    AT_END = "at the end"
    RECLAIMED = "once another attempt has the task"
    AT_ONCE = "at once"


@dataclass(frozen=True, slots=True)
class Trigger:
    """A state to wait for: every condition that is given must hold at once.

    `step_at_least` and `checkpoints_at_least` speak of the task of `role` ("ROLE/3" is the fourth
    task of a job that has several); `after` names a fault that has its receipt; `event` is the
    type of an event seen on the job of `role`; `elapsed_s` counts from the first submission. The
    others are explained in `chaos.triggers`.
    """

    role: str = "main"
    step_at_least: int | None = None
    checkpoints_at_least: int | None = None
    after: str | None = None
    event: str | None = None
    elapsed_s: float | None = None
    state: str | None = None
    log_of: str | None = None
    log_like: str | None = None
    file_like: str | None = None
    phase: str | None = None
    chance_per_s: float | None = None


@dataclass(frozen=True, slots=True)
class Action:
    """One fault of a schedule; it waits for its trigger alone, never for the faults before it.

    `target` is symbolic, resolved when the fault fires: "holder of ROLE" (the worker that holds
    the lease), "task of ROLE", "checkpoints of ROLE" (the tree on the volume), "artifacts of ROLE"
    (its accepted outputs), "target of FAULT" (whatever an earlier fault hit, also where it holds
    nothing any more), "worker N" (while it holds a task), "coordinator" or "toxiproxy".
    Without its receipt `deadline_s` after the first submission, a fault has missed. It waits for
    the faults before it that share one of its `lanes`; "*" shares with every other one. Where it
    misses, it is fired again, `tries` times in all.
    """

    fault_id: str
    kind: str
    target: str
    trigger: Trigger
    deadline_s: float
    params: JsonMap = field(default_factory=dict)
    comeback: Comeback = Comeback.AT_END
    lanes: tuple[str, ...] = ()
    tries: int = 1


@dataclass(frozen=True, slots=True)
class Container:
    """A container found by label. `run_id` is the label's value, None where there is none."""

    container_id: str
    service: str
    run_id: str | None


@dataclass(frozen=True, slots=True)
class Target:
    """What a symbolic target stands for at one moment.

    `container` is None for checkpoint trees; task fields are None for the coordinator.
    `listener` is the Toxiproxy listener that is the container's only path to the coordinator.
    """

    symbol: str
    container: Container | None = None
    listener: str | None = None
    node_id: str | None = None
    job_id: str | None = None
    task_id: str | None = None
    lease_id: str | None = None
    attempt_number: int | None = None


@dataclass(frozen=True, slots=True)
class Receipt:
    """Evidence, from an independent channel, of what a fault did.

    `took_effect_ns` is CLOCK_MONOTONIC. `lost_lease_id` is the lease whose holder the fault took
    away, None where no holder was lost: detection and recovery are measured from it.
    """

    landed: Landed
    evidence: JsonMap
    took_effect_ns: int | None = None
    lost_lease_id: str | None = None


@dataclass(frozen=True, slots=True)
class Undo:
    """One step that puts something right again: data, so that it survives the harness.

    It finds its object by label (`run_id`, names of services and listeners in `args`), never by
    container id alone, and may be repeated. `fault_id` is None for the stack itself.
    """

    undo_id: str
    run_id: str
    fault_id: str | None
    action: str
    args: JsonMap = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class JobRequest:
    """A job as a user would submit it: one command, with files placed beside it.

    `task_params` make one task each. It is submitted once the job `starts_after` has ended. `like`
    names the job that nobody disturbs and whose results must be the same. An attempt without
    progress for `no_progress_s` hangs. `through_proxy` submits it on the path of the clients,
    which may be cut, not on the own port of the coordinator.
    """

    name: str
    command: tuple[str, ...]
    files: Mapping[str, bytes] = field(default_factory=dict)
    env: Mapping[str, str] = field(default_factory=dict)
    required_outputs: tuple[str, ...] = ()
    lease_s: float = 3.0
    max_task_attempts: int = 3
    keep_checkpoints: int = 3
    task_params: tuple[JsonMap, ...] = ()
    starts_after: str | None = None
    like: str | None = None
    expected: str = "SUCCEEDED"
    no_progress_s: float | None = None
    through_proxy: bool = False


@dataclass(frozen=True, slots=True)
class TaskView:
    """The task of a job as the coordinator reports it; lease fields speak of the newest lease."""

    task_id: str
    state: str
    node_id: str | None = None
    lease_id: str | None = None
    attempts: int = 0
    step: int | None = None


@dataclass(frozen=True, slots=True)
class JobView:
    """A job of the workload, or one task of it: then `role` is "ROLE/INDEX", `state` the task's.

    `checkpoints` counts committed steps. `tasks` are those of a job that has several; it has no
    `task` itself.
    """

    role: str
    job_id: str
    state: str
    task: TaskView | None = None
    checkpoints: int = 0
    tasks: tuple[TaskView, ...] = ()

    @property
    def terminal(self) -> bool:
        """Whether the job has ended."""
        return self.state in {"SUCCEEDED", "FAILED", "CANCELLED", "COMPLETED"}

    def split(self) -> "tuple[JobView, ...]":
        """Return itself or, of several tasks, itself without them and a view of each."""
        if not self.tasks:
            return (self,)
        each = (
            JobView(f"{self.role}/{index}", self.job_id, task.state, task)
            for index, task in enumerate(self.tasks)
        )
        return (JobView(self.role, self.job_id, self.state), *each)


@dataclass(frozen=True, slots=True)
class Observation:
    """What is known of the system at one moment; `events` are the coordinator's own, in order.

    `lost` are the leases whose holders faults took away, known before the coordinator notices.
    `signs` are those that triggers look for and that were there at the last look.
    """

    elapsed_s: float = 0.0
    jobs: Mapping[str, JobView] = field(default_factory=dict)
    events: tuple[JsonMap, ...] = ()
    receipts: Mapping[str, Landed] = field(default_factory=dict)
    lost: frozenset[str] = frozenset()
    signs: frozenset[str] = frozenset()

    def holder(self, role: str) -> TaskView | None:
        """Return the task of a role while somebody holds it, and was not taken away."""
        job = self.jobs.get(role)
        task = job.task if job else None
        if task is None or task.state != "LEASED" or task.lease_id in self.lost:
            return None
        return task

    def events_of(self, task_id: str, *types: str) -> tuple[JsonMap, ...]:
        """Return the events of a task, of these types or of all, in order."""
        of_task = (event for event in self.events if event.get("task_id") == task_id)
        return tuple(event for event in of_task if not types or event.get("type") in types)

    def next_claim(self, task_id: str, lease_id: str) -> JsonMap | None:
        """Return the first claim of a task that came after the one that made `lease_id`."""
        claims = self.events_of(task_id, "LEASE_CLAIMED")
        made = [number for number, event in enumerate(claims) if event.get("lease_id") == lease_id]
        return claims[made[0] + 1] if made and made[0] + 1 < len(claims) else None

    def moved_on(self, lease_id: str) -> bool:
        """Return whether the task of a lease has been claimed anew, or has ended."""
        claims = [event for event in self.events if event.get("type") == "LEASE_CLAIMED"]
        task_ids = {e.get("task_id") for e in claims if e.get("lease_id") == lease_id}
        if any(j.terminal and j.task and j.task.task_id in task_ids for j in self.jobs.values()):
            return True
        later = [event.get("lease_id") for event in claims if event.get("task_id") in task_ids]
        return bool(later) and later[-1] != lease_id

    def accepted(self, lease_id: str) -> bool:
        """Return whether the attempt of a lease brought its task's result."""
        return any(
            event.get("type") == "TASK_COMMIT_ACCEPTED" and event.get("lease_id") == lease_id
            for event in self.events
        )


@dataclass(frozen=True, slots=True)
class Audit:
    """What a run left behind: names of its labelled objects, toxics, paused containers.

    `chains` are packet filter rules in containers that still run: "SERVICE/CHAIN".
    """

    containers: tuple[str, ...] = ()
    networks: tuple[str, ...] = ()
    volumes: tuple[str, ...] = ()
    toxics: tuple[str, ...] = ()
    paused: tuple[str, ...] = ()
    chains: tuple[str, ...] = ()

    @property
    def clean(self) -> bool:
        """Whether nothing is left."""
        left = (self.containers, self.networks, self.volumes, self.toxics, self.paused, self.chains)
        return not any(left)


@dataclass(frozen=True, slots=True)
class Finding:
    """What one invariant says of one history; `meaning` is what the invariant states.

    `decided_at` is the number of the record with which a history became violated.
    """

    name: str
    verdict: Verdict
    detail: str
    meaning: str = ""
    decided_at: int | None = None
