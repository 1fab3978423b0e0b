"""The symbols of targets, checked before anything runs: one that can match nothing is refused."""

import re
from collections.abc import Collection, Mapping, Sequence

from chaos.model import Action, JobRequest, UsageError

OF_A_ROLE = ("holder of ", "task of ", "checkpoints of ", "artifacts of ")
TARGET_OF = "target of "
ALONE = {
    "coordinator": "the container of the coordinator",
    "toxiproxy": "the container of Toxiproxy",
}
WORKER = re.compile(r"worker ([1-9][0-9]*)")
KNOWN = (
    "'holder of ROLE', 'task of ROLE', 'checkpoints of ROLE', 'artifacts of ROLE', "
    "'target of FAULT', 'worker N', 'coordinator', 'toxiproxy'"
)


def worker_in(symbol: str) -> str | None:
    """Return the service that "worker N" speaks of, None for any other symbol."""
    found = WORKER.fullmatch(symbol)
    return f"worker-{found[1]}" if found else None


def check_symbols(schedule: Sequence[Action], jobs: Mapping[str, JobRequest], workers: int) -> None:
    """Raise UsageError where a target or a trigger speaks of what the plan does not have."""
    before: set[str] = set()
    for action in schedule:
        where = f"fault {action.fault_id!r}"
        if (wrong := wrong_with(action.target, jobs, workers, before)) is not None:
            raise UsageError(f"{where}: target {action.target!r}: {wrong}")
        role = action.trigger.role
        wrong = _wrong_worker(role, workers) or _wrong_role(role, jobs)
        if wrong is not None and _asks_a_role(action):
            raise UsageError(f"{where}: its trigger speaks of {role!r}: {wrong}")
        before.add(action.fault_id)


def wrong_with(
    symbol: str, jobs: Mapping[str, JobRequest], workers: int, before: Collection[str]
) -> str | None:
    """Say why a symbol can match nothing in such a plan, None where it can."""
    if symbol in ALONE:
        return None
    if worker_in(symbol) is not None:
        return _wrong_worker(symbol, workers)
    if symbol.startswith(TARGET_OF):
        fault_id = symbol.removeprefix(TARGET_OF)
        return None if fault_id in before else f"no fault {fault_id!r} is before it"
    for kind in OF_A_ROLE:
        if symbol.startswith(kind):
            role = symbol.removeprefix(kind)
            return _wrong_role(role, jobs) or _without_task(role, jobs)
    return f"there is no such target; use {KNOWN}"


def meaning(symbol: str, workers: int) -> str:
    """Say which containers or files of a run a symbol may match."""
    if symbol in ALONE:
        return ALONE[symbol]
    if (service := worker_in(symbol)) is not None:
        return f"{service}, while it holds a task"
    kind, _, of = symbol.partition(" of ")
    return {
        "holder": f"one of worker-1 to worker-{workers}: whichever holds {of} then",
        "target": f"what {of} has hit",
        "checkpoints": f"the checkpoint tree of {of} on the volume",
        "artifacts": f"the accepted outputs of {of} in the coordinator's store",
        "task": f"{of} itself; no container",
    }[kind]


def _asks_a_role(action: Action) -> bool:
    asked = action.trigger
    of_a_role = (asked.step_at_least, asked.checkpoints_at_least, asked.event)
    later = (asked.state, asked.file_like, asked.phase)
    return any(wanted is not None for wanted in (*of_a_role, *later))


def _wrong_worker(symbol: str, workers: int) -> str | None:
    service = worker_in(symbol)
    if service is None or int(service.partition("-")[2]) <= workers:
        return None
    return f"the plan has worker 1 to worker {workers}"


def _wrong_role(role: str, jobs: Mapping[str, JobRequest]) -> str | None:
    """Say why there is no such job, or no such task of it."""
    if worker_in(role) is not None:
        return None
    name, has_index, index = role.partition("/")
    if name not in jobs:
        return f"no job has the role {name!r}; there are: {', '.join(jobs) or 'none'}"
    tasks = len(jobs[name].task_params)
    if has_index and not (index.isdecimal() and int(index) < tasks):
        return f"{name!r} has {tasks} numbered tasks, counted from 0"
    return None


def _without_task(role: str, jobs: Mapping[str, JobRequest]) -> str | None:
    """Say that a job of several tasks has none itself: nothing would ever match."""
    request = jobs.get(role)
    tasks = len(request.task_params) if request else 0
    return f"{role!r} has {tasks} tasks; name one: '{role}/0'" if tasks > 1 else None
