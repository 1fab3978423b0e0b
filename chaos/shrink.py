"""Shrinks a schedule that fails: drops faults, then weakens those that are left.

Dropping is `ddmin` of Zeller and Hildebrandt, "Simplifying and isolating failure-inducing input",
IEEE Transactions on Software Engineering 28(2), 2002 (doi:10.1109/32.988498): at most n * n + 3 n
schedules are tried for n faults. Pure: what a schedule does is asked through `fails`.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise

from chaos.model import Action, JsonValue, UsageError
from chaos.planfile import digest_of
from chaos.symbols import TARGET_OF

Schedule = tuple[Action, ...]
WEAKER = ("_ms", "_us", "_mib", "percent", "depth")
KINDS: Mapping[str, str] = {"kill_in_write_window": "kill"}
"""Kinds that wait for a moment, and the same harm at whatever moment."""
MOST_RUNS = 100
LESS_OFTEN = 3
"""How often the parameters of one fault are halved at most."""


class OutOfBudget(Exception):
    """No more may be tried; what was found so far stands."""


@dataclass(slots=True)
class Shrinker:
    """Asks whether a schedule still fails the same way, never twice about the same one.

    `fails` may raise OutOfBudget. `best` is the smallest failing schedule so far, `is_minimal`
    whether everything that could be smaller was tried.
    """

    fails: Callable[[Schedule], bool]
    say: Callable[[str], None]
    weaker: Callable[[Action], Sequence[Action]]
    best: Schedule = ()
    is_minimal: bool = False
    tried: dict[str, bool] = field(default_factory=dict)

    def shrink(self, schedule: Schedule) -> bool:
        """Look for the smallest; return whether the whole schedule fails at all."""
        self.best = schedule
        try:
            if not self._ask(schedule):
                return False
            self._drop()
            self._weaken()
        except OutOfBudget:
            return True
        self.is_minimal = True
        return True

    def _ask(self, schedule: Schedule) -> bool:
        key = digest_of(schedule)
        if key not in self.tried:
            self.tried[key] = self.fails(schedule)
        return self.tried[key]

    def _try(self, smaller: Schedule) -> bool:
        if not self._ask(smaller):
            return False
        self.best = smaller
        self.say(f"still fails with {len(smaller)}: {', '.join(a.fault_id for a in smaller)}")
        return True

    def _drop(self) -> None:
        """Drop all but one of `parts`, or one of them, ever smaller ones."""
        parts = 2
        while len(self.best) > 1:
            whole = self.best
            chunks = _split(whole, parts)
            rests = [tuple(a for a in whole if a not in chunk) for chunk in chunks]
            if any(self._try(kept) for kept in _mended(whole, chunks)):
                parts = 2
            elif parts > 2 and any(self._try(kept) for kept in _mended(whole, rests)):
                parts = max(parts - 1, 2)
            elif parts >= len(whole):
                return
            else:
                parts = min(len(whole), parts * 2)

    def _weaken(self) -> None:
        for fault_id in [action.fault_id for action in self.best]:
            for _ in range(LESS_OFTEN):
                action = next(each for each in self.best if each.fault_id == fault_id)
                if not any(self._try(self._with(weak)) for weak in self.weaker(action)):
                    break

    def _with(self, weak: Action) -> Schedule:
        return tuple(weak if a.fault_id == weak.fault_id else a for a in self.best)


def _split(whole: Schedule, parts: int) -> list[Schedule]:
    """Return `parts` pieces of about the same size, in order; none of them empty."""
    ends = [len(whole) * number // parts for number in range(parts + 1)]
    pieces = [whole[a:b] for a, b in pairwise(ends)]
    return [piece for piece in pieces if piece]


def _mended(whole: Schedule, kept: Sequence[Schedule]) -> list[Schedule]:
    """Return those schedules that can be followed, with what they wait for put right."""
    found = [mend(each, whole) for each in kept]
    return [each for each in found if each is not None]


def mend(kept: Schedule, whole: Schedule) -> Schedule | None:
    """Return a part of a schedule as one of its own, None where it cannot be followed.

    Whoever waited for a dropped fault waits for what that one waited for. An aim at the target of
    a dropped fault is lost.
    """
    after = {action.fault_id: action.trigger.after for action in whole}
    ids = {action.fault_id for action in kept}
    mended = []
    for action in kept:
        if action.target.startswith(TARGET_OF) and action.target.removeprefix(TARGET_OF) not in ids:
            return None
        waits = action.trigger.after
        while waits is not None and waits not in ids:
            waits = after.get(waits)
        mended.append(replace(action, trigger=replace(action.trigger, after=waits)))
    return tuple(mended)


def weakened(action: Action) -> tuple[Action, ...]:
    """Return milder forms of a fault, the mildest first: a plainer kind, smaller parameters."""
    plainer = KINDS.get(action.kind)
    found = [replace(action, kind=plainer, params={})] if plainer else []
    halves: dict[str, JsonValue] = {
        name: value // 2
        for name, value in action.params.items()
        if type(value) is int and name.endswith(WEAKER) and value > 1
    }
    if halves:
        found.append(replace(action, params={**action.params, **halves}))
    return tuple(found)


@dataclass(frozen=True, slots=True)
class Rate:
    """How many of how many runs must fail, so that a schedule counts as failing."""

    least: int
    of: int

    def decided(self, failed: int, runs: int) -> bool | None:
        """Return whether it is reached, None while both are still possible."""
        if failed >= self.least:
            return True
        return False if failed + self.of - runs < self.least else None

    def __str__(self) -> str:
        return f"{self.least}/{self.of}"

    @staticmethod
    def read(word: str) -> "Rate":
        """Return the rate that "3/3" means; raise UsageError."""
        least, _, of = word.partition("/")
        if not (least.isdecimal() and of.isdecimal() and 1 <= int(least) <= int(of) <= MOST_RUNS):
            raise UsageError(f"{word!r}: give K/N, 1 to N of at most {MOST_RUNS} runs")
        return Rate(int(least), int(of))


def same_failure(violated: frozenset[str], wanted: frozenset[str]) -> bool:
    """Whether a run broke every invariant that the first one did; it may have broken others too."""
    return bool(wanted) and wanted <= violated
