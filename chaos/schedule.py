"""(experiment, seed) -> plan: pure, and the same bytes for the same input."""

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import TypeVar

from chaos.model import Action, JobRequest, JsonValue, UsageError
from chaos.symbols import check_symbols

PLAN_SCHEMA = "chaos_plan_v1"
FLOOR = 0
LATER = ("state", "log_of", "log_like", "file_like", "phase", "chance_per_s")
"""Conditions of triggers that plans of before do not know."""
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Draw:
    """Seeded decisions by name: each depends on (seed, fault id, name) alone.

    So a fault that is added to a schedule, or asks for one decision more, shifts no other.
    `count` is how often an experiment repeats its fault.
    """

    seed: int
    count: int = 1

    def integer(self, fault_id: str, name: str, low: int, high: int) -> int:
        """Return an integer from low to high, both included."""
        digest = hashlib.sha256(f"{self.seed}/{fault_id}/{name}".encode()).digest()
        return low + int.from_bytes(digest[:8], "big") % (high - low + 1)

    def choice(self, fault_id: str, name: str, values: Sequence[T]) -> T:
        """Return one of `values`."""
        return values[self.integer(fault_id, name, 0, len(values) - 1)]


def expects(action: str, *classes: str, resumes: bool = False) -> dict[str, JsonValue]:
    """Return the parameters by which a fault says what the runtime should call it, and do."""
    return {"action": action, "classes": [*classes], "resumes": resumes}


@dataclass(frozen=True, slots=True)
class Experiment:
    """A load, the faults that hit it and the invariants that must survive.

    `invariants` are names; every experiment is judged by the standing ones too. `quick` ones run
    in `pytest chaos/`, the others with `-m bench_stress`, or `-m soak` where they are `rare`;
    `order` is the place in `list`; `count` is how often its fault is repeated unless a caller says
    otherwise, 0 where it cannot be. `limits_mib` and `variants` are those of `RunSpec`. Of its
    workers, never fewer than `floor` are left. Modules in chaos.experiments hold one as EXPERIMENT.
    """

    name: str
    summary: str
    workload: str
    faults: Callable[[Draw], tuple[Action, ...]]
    invariants: tuple[str, ...]
    workers: int = 3
    order: int = 100
    quick: bool = True
    rare: bool = False
    drain_s: float = 120.0
    count: int = 0
    limits_mib: Mapping[str, int] = field(default_factory=dict)
    variants: tuple[str, ...] = ()
    floor: int = FLOOR

    @property
    def of_set(self) -> str:
        """Return the set that it belongs to: quick, long or rare."""
        return "quick" if self.quick else "rare" if self.rare else "long"


@dataclass(frozen=True, slots=True)
class Plan:
    """Everything that is decided before a run; `to_bytes` is what plan.json holds."""

    experiment: str
    summary: str
    seed: int
    workers: int
    planted: str | None
    drain_s: float
    workload: str
    jobs: Mapping[str, JsonValue]
    schedule: tuple[Action, ...]
    invariants: tuple[str, ...]
    images: Mapping[str, str]
    count: int = 0
    limits_mib: Mapping[str, int] = field(default_factory=dict)
    variants: tuple[str, ...] = ()
    floor: int = FLOOR

    def to_json(self) -> dict[str, JsonValue]:
        """Return the plan as JSON; what came later stands in it only where it is used."""
        found: dict[str, JsonValue] = {"schema": PLAN_SCHEMA, **asdict(self)}
        found["schedule"] = [describe_action(action) for action in self.schedule]
        return found if self.floor != FLOOR else {k: v for k, v in found.items() if k != "floor"}

    def to_bytes(self) -> bytes:
        """Return the bytes of plan.json."""
        return (
            json.dumps(self.to_json(), allow_nan=False, sort_keys=True, indent=1) + "\n"
        ).encode()


def describe_action(action: Action) -> dict[str, JsonValue]:
    """Return a scheduled fault as a plan states it, without the later fields that it leaves out."""
    found = asdict(action)
    for name in LATER:
        if found["trigger"][name] is None:
            del found["trigger"][name]
    if not action.lanes:
        del found["lanes"]
    if action.tries == 1:
        del found["tries"]
    return found


def describe_job(request: JobRequest) -> JsonValue:
    """Return a job as a plan states it: files by digest."""
    return {
        "name": request.name,
        "command": list(request.command),
        "files": {path: hashlib.sha256(data).hexdigest() for path, data in request.files.items()},
        "env": dict(request.env),
        "required_outputs": list(request.required_outputs),
        "lease_s": request.lease_s,
        "max_task_attempts": request.max_task_attempts,
        "keep_checkpoints": request.keep_checkpoints,
        "task_params": [dict(params) for params in request.task_params],
        "starts_after": request.starts_after,
        "like": request.like,
        "expected": request.expected,
        "no_progress_s": request.no_progress_s,
        "through_proxy": request.through_proxy,
    }


def check_schedule(schedule: Sequence[Action]) -> None:
    """Raise UsageError where fault ids repeat or a trigger waits for a fault that is not before."""
    seen: set[str] = set()
    for action in schedule:
        if action.fault_id in seen:
            raise UsageError(
                f"fault id {action.fault_id!r} appears twice in the schedule; rename one"
            )
        after = action.trigger.after
        if after is not None and after not in seen:
            raise UsageError(
                f"fault {action.fault_id!r} waits for {after!r}, which is not before it; reorder"
            )
        seen.add(action.fault_id)


def check_jobs(jobs: Mapping[str, JobRequest]) -> None:
    """Raise UsageError where a job waits for one that is not before it, or is like nobody."""
    seen: set[str] = set()
    for role, request in jobs.items():
        if request.starts_after is not None and request.starts_after not in seen:
            raise UsageError(
                f"job {role!r} starts after {request.starts_after!r}, not before it; reorder"
            )
        if request.like is not None and request.like not in jobs:
            raise UsageError(f"job {role!r} is like {request.like!r}, which there is not")
        seen.add(role)


def check_triggers(schedule: Sequence[Action], jobs: Mapping[str, JobRequest]) -> None:
    """Raise UsageError where a trigger waits for more checkpoints than its job ever keeps."""
    for action in schedule:
        wanted, role = action.trigger.checkpoints_at_least, action.trigger.role
        request = jobs.get(role.partition("/")[0])
        if wanted is None or request is None or wanted <= request.keep_checkpoints:
            continue
        raise UsageError(
            f"fault {action.fault_id!r} waits for {wanted} checkpoints of {role!r}, which keeps "
            f"{request.keep_checkpoints}: that never comes; raise keep_checkpoints"
        )


def check_plan(schedule: Sequence[Action], jobs: Mapping[str, JobRequest], workers: int) -> None:
    """Raise UsageError where a plan cannot be followed, or waits or aims at what never comes."""
    check_schedule(schedule)
    check_jobs(jobs)
    check_triggers(schedule, jobs)
    check_symbols(schedule, jobs, workers)


def make_plan(
    experiment: Experiment,
    seed: int,
    workers: int,
    jobs: Mapping[str, JobRequest],
    *,
    images: Mapping[str, str],
    planted: str | None = None,
    count: int | None = None,
) -> Plan:
    """Return the plan of one run."""
    times = experiment.count if count is None else count
    schedule = experiment.faults(Draw(seed, times))
    check_plan(schedule, jobs, workers)
    return Plan(
        experiment=experiment.name,
        summary=experiment.summary,
        seed=seed,
        workers=workers,
        planted=planted,
        drain_s=experiment.drain_s,
        workload=experiment.workload,
        jobs={role: describe_job(request) for role, request in jobs.items()},
        schedule=schedule,
        invariants=experiment.invariants,
        images=dict(images),
        count=times,
        limits_mib=dict(experiment.limits_mib),
        variants=experiment.variants,
        floor=experiment.floor,
    )
