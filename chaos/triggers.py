"""When a fault may fire: every condition of its trigger must hold at one moment.

`state` is that of the task, or of the job where it has several. `log_like`, a regular expression,
is looked for in what the container of the service `log_of` writes once the fault is armed.
`file_like` is a glob below the task's checkpoint tree. `phase` is "parts-written": the holder saves
a step that has parts and no manifest yet. `chance_per_s` is drawn anew in each second.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath

from chaos.model import Action, JobView, Observation, Trigger, UsageError
from chaos.schedule import Draw
from chaos.symbols import worker_in

PHASES = ("parts-written",)
ONE_IN = 1 << 32
LOG, FILES, PHASE = "log", "files", "phase"


@dataclass(frozen=True, slots=True)
class Lot:
    """Whose trigger it is: what chance decides depends on seed and fault alone."""

    fault_id: str = ""
    seed: int = 0

    def sign(self, name: str) -> str:
        """Return the name under which a sign of this fault stands in an observation."""
        return f"{self.fault_id}/{name}"

    def comes_up(self, chance_per_s: float, elapsed_s: float) -> bool:
        """Whether this second is the one: the same in every run, and for every other fault."""
        tick = f"tick {int(elapsed_s)}"
        drawn = Draw(self.seed).integer(self.fault_id, tick, 0, ONE_IN - 1)
        return drawn < chance_per_s * ONE_IN


def holds(trigger: Trigger, seen: Observation, lot: Lot | None = None) -> bool:
    """Whether every condition of a trigger holds."""
    lot, job = lot or Lot(), view_of(trigger.role, seen)
    task = job.task if job else None
    step = task.step if task else None
    conditions = (
        trigger.step_at_least is None or (step is not None and step >= trigger.step_at_least),
        trigger.checkpoints_at_least is None
        or (job is not None and job.checkpoints >= trigger.checkpoints_at_least),
        trigger.after is None or trigger.after in seen.receipts,
        trigger.event is None or (job is not None and trigger.event in _types(seen, job.job_id)),
        trigger.elapsed_s is None or seen.elapsed_s >= trigger.elapsed_s,
        trigger.state is None or trigger.state == (task.state if task else job and job.state),
        trigger.log_like is None or lot.sign(LOG) in seen.signs,
        trigger.file_like is None or lot.sign(FILES) in seen.signs,
        trigger.phase is None or lot.sign(PHASE) in seen.signs,
        trigger.chance_per_s is None or lot.comes_up(trigger.chance_per_s, seen.elapsed_s),
    )
    return all(conditions)


def view_of(role: str, seen: Observation) -> JobView | None:
    """Return what is seen of a role; of "worker N", whatever task that worker holds now."""
    service = worker_in(role)
    if service is None:
        return seen.jobs.get(role)
    return next((view for view in seen.jobs.values() if _held_by(service, view, seen)), None)


def _held_by(service: str, view: JobView, seen: Observation) -> bool:
    held = seen.holder(view.role)
    return held is not None and f"{held.node_id}-".startswith(f"{service}-")


def check_conditions(schedule: Sequence[Action], workers: int) -> None:
    """Raise UsageError where a trigger waits for what can never be seen."""
    services = {"coordinator", "toxiproxy", *(f"worker-{n}" for n in range(1, workers + 1))}
    for action in schedule:
        if (wrong := _wrong(action.trigger, services)) is not None:
            raise UsageError(f"fault {action.fault_id!r}: {wrong}")


def _wrong(trigger: Trigger, services: set[str]) -> str | None:
    chance, path = trigger.chance_per_s, PurePosixPath(trigger.file_like or "x")
    rules = (
        ((trigger.log_of is None) is (trigger.log_like is None), "log_of goes with log_like"),
        (trigger.log_of in {None, *services}, f"no service {trigger.log_of!r} writes a log"),
        (trigger.phase in {None, *PHASES}, f"no phase {trigger.phase!r}; known: {PHASES[0]}"),
        (chance is None or 0 < chance <= 1, f"chance_per_s={chance}: above 0, at most 1"),
        (
            not path.is_absolute() and ".." not in path.parts and trigger.file_like != "",
            f"file_like={trigger.file_like!r} must be a pattern below the task's tree",
        ),
        (_compiles(trigger.log_like), f"log_like={trigger.log_like!r} is no regular expression"),
    )
    return next((told for is_kept, told in rules if not is_kept), None)


def _compiles(pattern: str | None) -> bool:
    try:
        re.compile(pattern or "")
    except re.error:
        return False
    return True


def _types(seen: Observation, job_id: str) -> set[str]:
    return {str(event.get("type")) for event in seen.events if event.get("job_id") == job_id}
