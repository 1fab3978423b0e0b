"""`python -m chaos shrink`: the smallest schedule that still breaks what a saved run broke.

Each candidate runs on a project and volumes of its own. What a run gave is on disk when the next
one begins, so that the same command goes on where the last one was stopped.
"""

import argparse
import json
import os
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from chaos import registry, runner
from chaos.console import Screen
from chaos.controller import End
from chaos.model import Action, CannotRun, JsonValue, UsageError, Verdict
from chaos.planfile import digest_of, read_plan
from chaos.ports import Machine
from chaos.runner import Options
from chaos.schedule import Plan, describe_action
from chaos.shrink import OutOfBudget, Rate, Schedule, Shrinker, same_failure, weakened

SCHEMA = "chaos_shrink_v1"
BUDGET_S = 600.0
UNKNOWN = 3
FOLDER, PROGRESS = "shrink", "progress.jsonl"


def add_verb(verbs: Any) -> None:
    """Declare the verb and its options."""
    verb = verbs.add_parser("shrink", help="the smallest schedule that fails like a saved run")
    verb.set_defaults(verb=shrink)
    verb.add_argument("folder", type=Path, metavar="RUN_DIR")
    verb.add_argument(
        "--rate", default="3/3", metavar="K/N", help="a schedule fails where K of N runs do"
    )
    verb.add_argument(
        "--budget-s", type=float, default=BUDGET_S, help="of this call; default: %(default)s"
    )
    verb.add_argument(
        "--invariant", dest="invariants", action="append", default=[], metavar="NAME",
        help="this one must break; default: all that the run broke; may be repeated",
    )  # fmt: skip
    verb.add_argument("--json", action="store_true", help="machine-readable, on stdout")


@dataclass(frozen=True, slots=True)
class Ran:
    """One run of a schedule: where it lies and which invariants it broke."""

    folder: str
    violated: frozenset[str]


@dataclass(slots=True)
class Trials:
    """Runs schedules until it is clear whether they fail at a rate; remembers on disk."""

    folder: Path
    wanted: frozenset[str]
    rate: Rate
    ends_at: float
    run: Callable[[Schedule], Ran]
    say: Callable[[str], None]
    known: dict[str, list[Ran]] = field(default_factory=dict)
    longest_s: float = 0.0

    def load(self) -> int:
        """Take over what earlier calls found out; return of how many runs."""
        path = self.folder / PROGRESS
        lines = path.read_text("utf-8").splitlines() if path.exists() else []
        for line in lines:
            try:
                told = json.loads(line)
                ran = Ran(str(told["run_dir"]), frozenset(told["violated"]))
                self.known.setdefault(str(told["schedule"]), []).append(ran)
            except (ValueError, KeyError, TypeError):
                self.say(f"{path}: a line cannot be read, and is left out")
        return sum(len(runs) for runs in self.known.values())

    def fails(self, schedule: Schedule) -> bool:
        """Whether it fails at the rate; raise OutOfBudget where that cannot be told in time."""
        runs = self.known.setdefault(digest_of(schedule), [])
        while (answer := self._decided(runs)) is None:
            if time.monotonic() + self.longest_s > self.ends_at:
                raise OutOfBudget
            began = time.monotonic()
            ran = self.run(schedule)
            self.longest_s = max(self.longest_s, time.monotonic() - began)
            runs.append(ran)
            self._write(schedule, ran)
        return answer

    def failures(self, schedule: Schedule) -> list[Ran]:
        """Return the runs of a schedule that failed as wanted."""
        runs = self.known.get(digest_of(schedule), [])
        return [ran for ran in runs if same_failure(ran.violated, self.wanted)]

    def runs_of(self, schedule: Schedule) -> int:
        """Return how often a schedule was run."""
        return len(self.known.get(digest_of(schedule), []))

    def _decided(self, runs: Sequence[Ran]) -> bool | None:
        failed = sum(1 for ran in runs if same_failure(ran.violated, self.wanted))
        return self.rate.decided(failed, len(runs))

    def _write(self, schedule: Schedule, ran: Ran) -> None:
        same = same_failure(ran.violated, self.wanted)
        names = ", ".join(action.fault_id for action in schedule)
        self.say(f"{len(schedule)} faults {'fail' if same else 'do not fail'} so: {names}")
        told = {
            "schedule": digest_of(schedule),
            "faults": [action.fault_id for action in schedule],
            "run_dir": ran.folder,
            "violated": sorted(ran.violated),
        }
        self.folder.mkdir(parents=True, exist_ok=True)
        with (self.folder / PROGRESS).open("a", encoding="utf-8") as stream:
            stream.write(json.dumps(told) + "\n")
            stream.flush()
            os.fsync(stream.fileno())


def shrink(arguments: argparse.Namespace, screen: Screen, machine: Callable[[], Machine]) -> int:
    """Shrink the schedule of a run that broke something; 3 where it is not known to be smallest."""
    plan, rate = read_plan(arguments.folder), Rate.read(arguments.rate)
    wanted = _wanted(arguments.folder, arguments.invariants)
    runner.prepare_saved(plan, plan.images)
    folder = arguments.folder / FOLDER
    run = _runner(plan, folder, machine(), screen)
    ends_at = time.monotonic() + arguments.budget_s
    trials = Trials(folder, wanted, rate, ends_at, run, screen.say)
    known = trials.load()
    faults, broken = len(plan.schedule), ", ".join(sorted(wanted))
    screen.say(f"{faults} faults broke {broken}; {rate} runs must; {known} runs are known")
    search = Shrinker(trials.fails, screen.say, _weaker)
    if not search.shrink(plan.schedule):
        screen.say(f"the whole schedule does not break that in {rate} runs: nothing to shrink")
        return UNKNOWN
    told = _result(arguments.folder, plan, search, trials)
    _write_result(folder, told, trials.failures(search.best))
    if arguments.json:
        sys.stdout.write(json.dumps(told, indent=1, sort_keys=True) + "\n")
    _show(told, screen)
    return 0 if search.is_minimal else UNKNOWN


def _wanted(folder: Path, named: Sequence[str]) -> frozenset[str]:
    """Return the invariants that must break again; raise UsageError where the run broke none."""
    findings = runner.judge_folder(folder).findings
    broken = frozenset(found.name for found in findings if found.verdict is Verdict.VIOLATED)
    if missing := sorted({*named} - broken):
        raise UsageError(f"{folder} did not break {missing[0]}; it broke: {_listed(broken)}")
    if not broken:
        raise UsageError(f"{folder} broke no invariant: there is nothing to shrink")
    return frozenset(named) or broken


def _listed(names: frozenset[str]) -> str:
    return ", ".join(sorted(names)) or "nothing"


def _runner(
    plan: Plan, folder: Path, machine: Machine, screen: Screen
) -> Callable[[Schedule], Ran]:
    images = machine.images(plan.planted)

    def run(schedule: Schedule) -> Ran:
        ready, jobs = runner.prepare_saved(replace(plan, schedule=schedule), images)
        result = runner.run_plan(ready, jobs, Options(out=folder / "runs"), machine, _silent)
        if result.outcome.end is End.INTERRUPTED:
            raise KeyboardInterrupt
        if result.outcome.end is not End.COMPLETED:
            raise CannotRun(f"{result.folder}: {result.outcome.reason}")
        findings = result.judgement.findings
        broken = frozenset(found.name for found in findings if found.verdict is Verdict.VIOLATED)
        screen.say(f"{result.judgement.verdict} after {result.wall_s:.0f} s: {_listed(broken)}")
        return Ran(str(result.folder), broken)

    return run


def _silent(_text: str) -> None:
    """Say nothing of what goes on within a run: there are many."""


def _weaker(action: Action) -> tuple[Action, ...]:
    """Return milder forms: those that the kind itself offers, then those of any kind."""
    own = getattr(registry.faults().get(action.kind), "weaker", None)
    offered = own(action.params) if callable(own) else ()
    return (*(replace(action, params=params) for params in offered), *weakened(action))


def _result(of: Path, plan: Plan, search: Shrinker, trials: Trials) -> dict[str, JsonValue]:
    failures = trials.failures(search.best)
    run_dir = failures[-1].folder if failures else str(of)
    return {
        "schema": SCHEMA,
        "of": str(of),
        "invariants": [*sorted(trials.wanted)],
        "asked_rate": str(trials.rate),
        "failed": len(failures),
        "runs": trials.runs_of(search.best),
        "runs_in_all": sum(len(runs) for runs in trials.known.values()),
        "is_minimal": search.is_minimal,
        "faults_before": len(plan.schedule),
        "faults": len(search.best),
        "schedule": [describe_action(action) for action in search.best],
        "run_dir": run_dir,
        "command": f"python -m chaos replay {run_dir}",
    }


def _write_result(folder: Path, told: dict[str, JsonValue], failures: Sequence[Ran]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "shrink.json").write_text(json.dumps(told, indent=1) + "\n", encoding="utf-8")
    if failures:
        link = folder / "smallest"
        link.unlink(missing_ok=True)
        link.symlink_to(Path(failures[-1].folder).resolve())


def _show(told: dict[str, JsonValue], screen: Screen) -> None:
    rest = "" if told["is_minimal"] else "; the budget ended the search: the same command goes on"
    screen.say(
        f"{told['faults']} of {told['faults_before']} faults are left, failing in "
        f"{told['failed']} of {told['runs']} runs ({told['runs_in_all']} in all){rest}"
    )
    screen.say(f"run it again: {told['command']}")
