"""Every crash point of one save: recorded once, then disturbed at each boundary, and judged."""

from collections.abc import Callable
from dataclasses import dataclass

from chaos.model import CannotRun, JsonMap, Landed, Verdict
from chaos.ports.syscalls import KILL, Saved, Syscalls
from chaos.syscalls_trace import Syscall

SUBJECTS = {"checkpoint": "checkpoint", "commit": "coordinator"}
"""What can be swept, and the recorded save that does it: a checkpoint, or an artifact's commit with
the transaction of a submission after it."""
KILLED = 137
WHOLE, ABSENT = "whole", "absent"


@dataclass(frozen=True, slots=True)
class Point:
    """One boundary k, from 1, disturbed and judged."""

    k: int
    call: Syscall
    landed: Landed
    evidence: str
    at_s: float | None
    violations: tuple[str, ...]

    def to_json(self) -> JsonMap:
        """Return it as JSON."""
        return {
            "k": self.k,
            "syscall": self.call.name,
            "nth": self.call.nth,
            "paths": [*self.call.paths],
            "landed": str(self.landed),
            "evidence": self.evidence,
            "violations": [*self.violations],
        }


@dataclass(frozen=True, slots=True)
class Findings:
    """One subject swept; `known` is K, the number of its boundaries."""

    what: str
    how: str
    known: int
    points: tuple[Point, ...]

    @property
    def verdict(self) -> Verdict:
        """Violated by any point; unknown where one was missed or none was tried."""
        if any(point.violations for point in self.points):
            return Verdict.VIOLATED
        landed = [point.landed is Landed.LANDED for point in self.points]
        return Verdict.VALID if landed and all(landed) else Verdict.UNKNOWN


def boundaries(saved: Saved) -> tuple[Syscall, ...]:
    """Return the calls that change the volume, in their order."""
    return tuple(call for call in saved.calls if call.changes(saved.root))


def spread(known: int, limit: int | None) -> tuple[int, ...]:
    """Return which boundaries to try: all, or `limit` of them spread evenly, both ends included."""
    if limit is None or limit >= known:
        return tuple(range(1, known + 1))
    if limit < 2:
        return (known,)[:limit]
    return tuple(1 + index * (known - 1) // (limit - 1) for index in range(limit))


def explore(
    syscalls: Syscalls, what: str, how: str, limit: int | None, say: Callable[[str], object]
) -> Findings:
    """Record one save and disturb it at each boundary; CannotRun where it fails undisturbed."""
    recorded = syscalls.save(SUBJECTS[what])
    wrong = violations(recorded)
    if wrong or not recorded.answered:
        raise CannotRun(f"{what}: the undisturbed save is no good: {'; '.join(wrong) or 'silent'}")
    known = boundaries(recorded)
    chosen = spread(len(known), limit)
    say(f"{what}: K = {len(known)} boundaries recorded, {len(chosen)} of them tried with {how}")
    points = []
    for k in chosen:
        saved = syscalls.save(SUBJECTS[what], known[k - 1], how)
        points.append(judged(k, known[k - 1], how, saved))
    return Findings(what, how, len(known), tuple(points))


def judged(k: int, call: Syscall, how: str, saved: Saved) -> Point:
    """Return whether the disturbance landed at this very call, and what is wrong afterwards."""
    hit = _killed_at(saved) if how == KILL else _refused_at(saved)
    if hit is None:
        landed, evidence = Landed.MISSED, f"not seen in the trace; exit {saved.exit_code}"
    elif (hit.place, hit.nth_there) != (call.place, call.nth_there):
        landed, evidence = (
            Landed.MISSED,
            f"hit {' '.join(hit.place)} instead (its call {hit.nth_there})",
        )
    else:
        result = f"killed, exit {saved.exit_code}" if how == KILL else f"{hit.errno} (INJECTED)"
        landed, evidence = Landed.LANDED, f"{hit.name}({hit.words}): {result}"
    return Point(k, call, landed, evidence, hit.at_s if hit else None, violations(saved))


def violations(saved: Saved) -> tuple[str, ...]:
    """Return what is wrong: not usable, an answered item not whole, another one torn."""
    found = [] if saved.usable else [f"the volume cannot be used again: {saved.detail}"]
    promised = {item: saved.items.get(item, "not seen") for item in saved.answered}
    found += [
        f"{item} had been answered and is {seen}"
        for item, seen in promised.items()
        if seen != WHOLE
    ]
    found += [
        f"{item} is {seen}"
        for item, seen in saved.items.items()
        if item not in promised and seen not in {WHOLE, ABSENT}
    ]
    return tuple(found)


def _killed_at(saved: Saved) -> Syscall | None:
    """Return the call below the root that never returned, where the save was killed."""
    if saved.exit_code != KILLED:
        return None
    return next((c for c in reversed(boundaries(saved)) if c.result is None), None)


def _refused_at(saved: Saved) -> Syscall | None:
    return next((call for call in saved.calls if call.injected and call.errno), None)
