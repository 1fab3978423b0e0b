"""The looks that a trigger needs beyond what the observer sees anyway."""

import re
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from chaos.model import Action, Observation
from chaos.ports import Signs
from chaos.triggers import FILES, LOG, PHASE, Lot, view_of

Look = Callable[[Observation], bool]


def looks_of(action: Action, signs: Signs, lot: Lot) -> Mapping[str, Look]:
    """Return what to ask, by the name under which the answer stands in an observation."""
    trigger, role = action.trigger, action.trigger.role
    found: dict[str, Look] = {}
    if trigger.log_of is not None and trigger.log_like is not None:
        pattern = re.compile(trigger.log_like)
        found[lot.sign(LOG)] = LogLook(signs, trigger.log_of, pattern, time.monotonic_ns())
    if (pattern_of := trigger.file_like) is not None:
        found[lot.sign(FILES)] = lambda seen: _has_file(signs, seen, role, pattern_of)
    if trigger.phase is not None:
        found[lot.sign(PHASE)] = lambda seen: _is_saving(signs, seen, role)
    return found


@dataclass(slots=True)
class LogLook:
    """Looks for a line, each time only in what was written since the last look; then it is there.

    The clocks of engine and harness may drift by a little between two looks: that much is read
    again.
    """

    signs: Signs
    service: str
    pattern: re.Pattern[str]
    since_ns: int
    found: bool = False
    again_ns: int = 5_000_000

    def __call__(self, _seen: Observation) -> bool:
        """Whether the line was there, now or before."""
        if not self.found:
            lines = self.signs.written(self.service, self.since_ns)
            self.found = any(self.pattern.search(line.text) for line in lines)
            newest_ns = max((line.at_ns for line in lines), default=self.since_ns)
            self.since_ns = max(self.since_ns, newest_ns - self.again_ns)
        return self.found


def _has_file(signs: Signs, seen: Observation, role: str, pattern: str) -> bool:
    job = view_of(role, seen)
    task = job.task if job else None
    return job is not None and task is not None and bool(
        signs.files(job.job_id, task.task_id, pattern)
    )  # fmt: skip


def _is_saving(signs: Signs, seen: Observation, role: str) -> bool:
    job = view_of(role, seen)
    held = seen.holder(job.role) if job else None
    if job is None or held is None or held.lease_id is None:
        return False
    return signs.parts_written(job.job_id, held.task_id, held.lease_id)
