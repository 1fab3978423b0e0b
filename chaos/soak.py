"""The full counts: what is repeated until how much was reached, and what was reached so far.

A stage is a command of this harness with a goal; its steps run until what they measured reaches it.
What each step gave is a line on disk before the next begins, so that a stopped soak goes on.
"""

import json
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from math import ceil
from pathlib import Path
from typing import Any

from chaos.model import CannotRun, JsonValue, Verdict

LINES = "soak.jsonl"
VERDICTS = {0: Verdict.VALID, 1: Verdict.VIOLATED, 3: Verdict.UNKNOWN}
RESERVE = 1.5
"""A stage that counts is given up after so many times the steps that it takes if all is well."""


def runs(verdict: Mapping[str, Any]) -> int:
    """Count a run that was judged valid."""
    return int(verdict["verdict"] == Verdict.VALID)


def landed(verdict: Mapping[str, Any]) -> int:
    """Count the faults of a run that landed."""
    return sum(fault["landed"] == "landed" for fault in verdict["faults"])


def measured(verdict: Mapping[str, Any]) -> int:
    """Count the losses of a run whose detection was timed."""
    return len(verdict["figures"].get("mttd_s") or ())


@dataclass(frozen=True, slots=True)
class Stage:
    """`words(n)` is the command of step n, which reaches `each` of `goal` `unit`s if all is well.

    `count` takes what was reached from a verdict; without it a step that ends with 0 counts one.
    """

    name: str
    unit: str
    goal: int
    each: int
    words: Callable[[int], Sequence[str]]
    count: Callable[[Mapping[str, Any]], int] | None = None

    def scaled(self, share: float) -> "Stage":
        """Return this stage with a smaller goal, but at least that of one step."""
        goal = max(self.each, ceil(self.goal * share))
        return Stage(self.name, self.unit, goal, self.each, self.words, self.count)

    @property
    def most_steps(self) -> int:
        """After how many steps it is given up; what is not counted in parts has no second try."""
        if self.each == 1:
            return self.goal
        return ceil(RESERVE * self.goal / self.each)


@dataclass(frozen=True, slots=True)
class Step:
    """What one step gave."""

    stage: str
    number: int
    words: tuple[str, ...]
    exit_code: int
    seconds: float
    reached: int
    mttd_s: tuple[float, ...] = ()
    mttr_s: tuple[float, ...] = ()
    violated: tuple[str, ...] = ()


def read_verdicts(folder: Path) -> list[Mapping[str, Any]]:
    """Return every verdict below a folder on the runtime, oldest first; those on plants are not."""
    paths = [
        path
        for path in sorted(folder.rglob("verdict.json"))
        if not _linked(path, folder) and not _planted(path.parent / "plan.json")
    ]
    return [json.loads(path.read_bytes()) for path in paths]


def _linked(path: Path, folder: Path) -> bool:
    return any(each.is_symlink() for each in path.parents if folder in each.parents)


def _planted(plan: Path) -> bool:
    return plan.exists() and json.loads(plan.read_bytes()).get("planted") is not None


def step_of(
    stage: Stage, number: int, exit_code: int, seconds: float, verdicts: Sequence[Mapping[str, Any]]
) -> Step:
    """Return what a step gave, from its exit code and the verdicts that it wrote."""
    count = stage.count
    reached = sum(map(count, verdicts)) if count else int(exit_code == 0)
    return Step(
        stage.name,
        number,
        tuple(stage.words(number)),
        exit_code,
        round(seconds, 1),
        reached,
        _pooled(verdicts, "mttd_s"),
        _pooled(verdicts, "mttr_s"),
        tuple(
            f"{verdict['experiment']}, seed {verdict['seed']}: {found['name']}"
            for verdict in verdicts
            for found in verdict["invariants"]
            if found["verdict"] == Verdict.VIOLATED
        ),
    )


def _pooled(verdicts: Sequence[Mapping[str, Any]], name: str) -> tuple[float, ...]:
    return tuple(each for verdict in verdicts for each in verdict["figures"].get(name) or ())


def load(folder: Path) -> list[Step]:
    """Return the steps that earlier calls carried out; raise CannotRun where a line is none.

    A last line without its end was being written when the machine stopped: its step runs again.
    """
    path = folder / LINES
    lines = path.read_text("utf-8").split("\n")[:-1] if path.exists() else []
    steps = []
    for number, line in enumerate(lines, 1):
        try:
            told = json.loads(line)
            lists = {name: tuple(value) for name, value in told.items() if isinstance(value, list)}
            steps.append(Step(**(told | lists)))
        except (ValueError, TypeError) as error:
            raise CannotRun(f"{path}, line {number}: {error}; begin anew with --out") from error
    return steps


def save(folder: Path, step: Step) -> None:
    """Append a step; it is on disk when this returns."""
    path = folder / LINES
    whole = path.read_bytes() if path.exists() else b""
    with path.open("r+b" if whole else "wb") as stream:
        stream.truncate(whole.rfind(b"\n") + 1)
        stream.seek(0, os.SEEK_END)
        stream.write(json.dumps(asdict(step), allow_nan=False).encode() + b"\n")
        stream.flush()
        os.fsync(stream.fileno())


@dataclass(frozen=True, slots=True)
class Tally:
    """What the steps of one stage gave together."""

    stage: Stage
    steps: tuple[Step, ...]

    @property
    def reached(self) -> int:
        """How much of the goal."""
        return sum(step.reached for step in self.steps)

    @property
    def over(self) -> bool:
        """Whether no step is left: the goal was reached, or the stage given up."""
        return self.reached >= self.stage.goal or len(self.steps) >= self.stage.most_steps

    @property
    def verdict(self) -> Verdict:
        """Violated where one step was; valid where the goal was reached and no step failed."""
        codes = {step.exit_code for step in self.steps}
        if 1 in codes:
            return Verdict.VIOLATED
        return Verdict.VALID if self.reached >= self.stage.goal else Verdict.UNKNOWN

    def unclear(self) -> int:
        """Count the steps that decided nothing."""
        return sum(step.exit_code == 3 for step in self.steps)

    def to_json(self) -> dict[str, JsonValue]:
        """Return what soak.json says of it."""
        return {
            "stage": self.stage.name,
            "unit": self.stage.unit,
            "goal": self.stage.goal,
            "reached": self.reached,
            "verdict": str(self.verdict),
            "steps": len(self.steps),
            "unclear": self.unclear(),
            "violated": [name for step in self.steps for name in step.violated],
            "seconds": round(sum(step.seconds for step in self.steps), 1),
            "mttd_s": spread([each for step in self.steps for each in step.mttd_s]),
            "mttr_s": spread([each for step in self.steps for each in step.mttr_s]),
        }


def tally(stages: Sequence[Stage], steps: Sequence[Step]) -> list[Tally]:
    """Sort steps by stage."""
    return [
        Tally(stage, tuple(step for step in steps if step.stage == stage.name)) for stage in stages
    ]


def spread(values: Sequence[float]) -> JsonValue:
    """Return a distribution: number, median, 90th and 99th percentile (nearest rank), largest.

    The 99th only of 300 values and more: of fewer it is about the largest one.
    """
    if not values:
        return None
    listed = sorted(values)
    ranks = {"p50": 50, "p90": 90} | ({"p99": 99} if len(listed) >= 300 else {})
    found = {name: listed[ceil(rank / 100 * len(listed)) - 1] for name, rank in ranks.items()}
    return {"n": len(listed), **found, "max": listed[-1]}
