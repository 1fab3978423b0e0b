"""What a scenario is, and the bench on which it measures.

A scenario file holds one object SCENARIO; its module docstring is the method. `run(bench)` takes
samples with `bench.take` (arms in turn) and hands each figure over with `bench.report`.
"""

import shutil
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks import stats
from benchmarks.schema import (
    BenchError,
    Better,
    Comparison,
    Interval,
    Row,
    Section,
    Series,
    Target,
    Unavailable,
)

PAYLOADS = Path(__file__).with_name("payloads")
LOCAL_ONLY = frozenset({Target.LOCAL})

Measured = float | Mapping[str, float]
Arm = Callable[[], Measured]
Taken = dict[str, list[float]]


@dataclass(frozen=True, slots=True)
class Scenario:
    """A question with a hypothesis; `budget_s` is what five repeats may take on two cores."""

    name: str
    section: Section
    hypothesis: str
    method: str | None
    unit: str
    budget_s: float
    run: Callable[["Bench"], None]
    better: Better = Better.LOWER
    interval: Interval | None = None
    needs_torch: bool = False
    targets: frozenset[Target] = LOCAL_ONLY


@dataclass(slots=True)
class Bench:
    """Where one scenario measures; `scratch` is its own and removed afterwards."""

    scenario: Scenario
    scratch: Path
    repeats: int
    smoke: bool = False
    target: Target = Target.LOCAL
    say: Callable[[str], None] = lambda _text: None
    rows: list[Row] = field(default_factory=list)
    _notes: list[str] = field(default_factory=list)
    _begun_s: float = field(default_factory=time.monotonic)
    _folders: int = 0

    def count(self, per_repeat: int) -> int:
        """Return how many samples to take: so many for each repeat, one in a smoke."""
        return 1 if self.smoke else self.repeats * per_repeat

    def folder(self, name: str = "run") -> Path:
        """Return a new empty directory."""
        self._folders += 1
        path = self.scratch / f"{name}-{self._folders:04d}"
        path.mkdir(parents=True)
        return path

    def source(self, *payloads: str, text: Mapping[str, str] | None = None) -> Path:
        """Return a new directory with these payload scripts and texts: the code of a job."""
        path = self.folder("source")
        for name in payloads:
            shutil.copy(PAYLOADS / name, path)
        for name, content in (text or {}).items():
            (path / name).write_text(content, encoding="utf-8")
        return path

    def note(self, text: str) -> None:
        """Add a caveat to the next row."""
        if text not in self._notes:
            self._notes.append(text)

    def take(self, count: int, arms: Mapping[str, Arm], *, warm_up: int = 1) -> Taken:
        """Run the arms in turn, `count` rounds in alternating order, and return every sample.

        An arm returns a number, or several by name, which are kept as `arm.name`. The first
        `warm_up` rounds are thrown away (a smoke has none). An arm that is Unavailable drops out,
        with a note, and is then missing in what is returned.
        """
        taken: Taken = {}
        warm_up = 0 if self.smoke else warm_up
        living = dict(arms)
        for number in range(-warm_up, count):
            names = list(living)
            for name in names if number % 2 == 0 else reversed(names):
                try:
                    measured = living[name]()
                except Unavailable as error:
                    self._drop(name, error, living, taken)
                    continue
                if number >= 0:
                    _keep(taken, name, measured)
            self.say(f"round {number + 1}/{count}" if number >= 0 else "warm-up")
        return taken

    def report(
        self,
        samples: Sequence[float] | None,
        *,
        variant: str = "",
        unit: str | None = None,
        better: Better | None = None,
        comparators: Mapping[str, Sequence[float] | None] | None = None,
        paired: bool = True,
        counted: bool = False,
        figures: Sequence[Series] = (),
        notes: Sequence[str] = (),
    ) -> None:
        """Hand over one figure with what it is compared with and its caveats.

        Without samples the row has no number and the first note is the reason. Comparators without
        samples get no number. `paired`: equally many samples were taken in the same rounds.
        `counted`: a count that does not vary, so that there is nothing to test.
        """
        if any(row.variant == variant for row in self.rows):
            raise BenchError(f"{self.scenario.name} reports {variant!r} twice; name the variants")
        ours = list(samples or ())
        unit = unit or self.scenario.unit
        caveats = [*notes, *self._notes]
        others = {name: list(values) for name, values in (comparators or {}).items() if values}
        self.rows.append(
            Row(
                scenario=self.scenario.name,
                variant=variant,
                section=self.scenario.section,
                target=self.target,
                hypothesis=self.scenario.hypothesis,
                method=self.scenario.method or "",
                interval=self.scenario.interval,
                unit=unit,
                better=better or self.scenario.better,
                **_figure(ours, caveats),
                comparators={name: stats.median(values) for name, values in others.items()},
                comparisons=[] if counted else _comparisons(ours, others, paired=paired),
                series=[*(series(name, unit, values) for name, values in others.items()), *figures],
                notes=caveats,
                wall_s=time.monotonic() - self._begun_s,
            )
        )
        self._notes.clear()
        self._begun_s = time.monotonic()

    def amend(self, **fields: object) -> None:
        """Replace fields of the newest row: an interval of its own, another test."""
        self.rows[-1] = Row(**{**dict(self.rows[-1]), **fields})

    def _drop(self, name: str, error: Unavailable, living: dict[str, Arm], taken: Taken) -> None:
        self.note(f"{name}: not measured: {error}")
        del living[name]
        for key in [key for key in taken if key.split(".")[0] == name]:
            del taken[key]


def _keep(taken: Taken, name: str, measured: Measured) -> None:
    parts = measured if isinstance(measured, Mapping) else {"": measured}
    for part, value in parts.items():
        taken.setdefault(f"{name}.{part}" if part else name, []).append(float(value))


def _figure(samples: list[float], caveats: Sequence[str]) -> dict[str, Any]:
    middle, p10, p90 = _summary(samples)
    reason = None if samples else (caveats or ["no sample could be taken"])[0]
    about = {"repeats": len(samples), "samples": samples, "reason": reason}
    return {"median": middle, "p10": p10, "p90": p90, **about}


def series(name: str, unit: str, samples: Sequence[float]) -> Series:
    """Return a named quantity with its summary."""
    middle, p10, p90 = _summary(samples)
    return Series(name=name, unit=unit, samples=list(samples), median=middle, p10=p10, p90=p90)


def _summary(samples: Sequence[float]) -> tuple[float | None, float | None, float | None]:
    if not samples:
        return None, None, None
    summary = stats.summarise(samples)
    return summary.median, summary.p10, summary.p90


def _comparisons(
    ours: Sequence[float], others: Mapping[str, Sequence[float]], *, paired: bool
) -> list[Comparison]:
    if not ours:
        return []
    return [compared(name, ours, theirs, paired=paired) for name, theirs in others.items()]


def compared(
    comparator: str, ours: Sequence[float], theirs: Sequence[float], *, paired: bool
) -> Comparison:
    """Test ours against theirs and say it in words, "not significant" before any ratio.

    With fewer than LEAST_PAIRS pairs no signed-rank test can reach 5 %: then the ranks of both
    sets are compared.
    """
    pairs = paired and len(ours) == len(theirs)
    differing = stats.differences(ours, theirs) if pairs else []
    if pairs and len(ours) >= stats.LEAST_PAIRS:
        p_value = stats.signed_rank(differing)
    else:
        p_value = stats.rank_sum(ours, theirs)
    if pairs:
        difference, (low, high) = stats.median(differing), stats.paired_interval(differing)
    else:
        difference = stats.median(ours) - stats.median(theirs)
        low, high = stats.unpaired_interval(ours, theirs)
    base = stats.median(theirs)
    ratio = stats.median(ours) / base if base > 0 else None
    significant = p_value <= stats.ALPHA
    numbers = f"difference {difference:+.3g} [{low:+.3g}, {high:+.3g}], p={p_value:.2g}"
    times = f", {ratio:.3g} x {comparator}" if ratio is not None else ""
    return Comparison(
        comparator=comparator,
        paired=pairs,
        difference=difference,
        ci_low=low,
        ci_high=high,
        p_value=p_value,
        significant=significant,
        ratio=ratio,
        finding=f"{'significant' if significant else 'not significant'}: {numbers}{times}",
    )


def cleared(path: Path) -> None:
    """Remove a directory that a measurement no longer needs."""
    with suppress(OSError):
        shutil.rmtree(path)


def require(found: object, reason: str) -> None:
    """Raise Unavailable unless what a measurement needs is there."""
    if not found:
        raise Unavailable(reason)


def expect(holds: bool, failure: str) -> None:
    """Raise BenchError unless a measured process did what it should."""
    if not holds:
        raise BenchError(failure)
