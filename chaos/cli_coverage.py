"""`python -m chaos coverage`: what the saved runs of a folder have exercised."""

import argparse
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from chaos import coverage_page, registry
from chaos.console import Screen
from chaos.coverage import Coverage, SavedRun, State, cover
from chaos.figures.phases import Phase
from chaos.history import History, HistoryError
from chaos.judge import STANDING
from chaos.model import JsonMap, UsageError
from chaos.ports import Machine
from chaos.runner import DEFAULT_OUT, judge_folder
from chaos.words import counted

LETTERS = {
    State.FAIL: "FAIL",
    State.PASS: "pass",
    State.UNKNOWN: "?",
    State.MISSED: "missed",
    State.NOT_EXERCISED: "-",
}


def add_verb(verbs: Any) -> None:
    """Declare the verb and its options."""
    verb = verbs.add_parser("coverage", help="what saved runs exercised: phase x fault x invariant")
    verb.set_defaults(verb=run)
    verb.add_argument("--runs", type=Path, default=DEFAULT_OUT, help="default: %(default)s")
    verb.add_argument("--html", type=Path, metavar="FILE", help="write it as a page too")
    verb.add_argument("--json", action="store_true", help="machine-readable, on stdout")


def run(arguments: argparse.Namespace, screen: Screen, _machine: Callable[[], Machine]) -> int:
    """Show what was covered; raise UsageError where the folder has no run."""
    found = covered(arguments.runs)
    if arguments.html is not None:
        arguments.html.write_text(coverage_page.html(found), encoding="utf-8")
        screen.say(f"written to {arguments.html}")
    if arguments.json:
        sys.stdout.write(json.dumps(found.to_json(), allow_nan=False, indent=1) + "\n")
    else:
        _show(found, screen)
    return 0


def covered(folder: Path) -> Coverage:
    """Return what the runs of a folder cover; one that cannot be read is named as left out."""
    runs, problems = [], []
    for path in sorted(folder.glob("*/history.jsonl")):
        if path.parent.is_symlink():
            continue
        try:
            runs.append(_read(path.parent))
        except (HistoryError, ValueError, KeyError) as error:
            problems.append(f"{path.parent.name}: {error}")
    if not runs and not problems:
        raise UsageError(f"{folder} has no saved run; `python -m chaos run` makes one")
    found = cover(runs, registry.faults(), _invariants())
    found.left_out += tuple(problems)
    return found


def _read(folder: Path) -> SavedRun:
    """Read a run; it is judged now where it has no verdict yet."""
    saved = folder / "verdict.json"
    history = History.load(folder / "history.jsonl")
    if saved.is_file():
        verdict: JsonMap = json.loads(saved.read_bytes())
    else:
        verdict = judge_folder(folder).to_json()
    history.one("plan")
    return SavedRun(folder.name, history, verdict)


def _invariants() -> tuple[str, ...]:
    named = (name for each in registry.experiments() for name in each.invariants)
    return tuple(dict.fromkeys((*STANDING, *named)))


def _show(found: Coverage, screen: Screen) -> None:
    rows = []
    for fault in found.faults:
        states = [found.state(phase=phase, fault=fault) for phase in Phase]
        rows.append((fault, *(LETTERS[state] for state in states)))
    numbers = [str(number) for number, _ in enumerate(Phase, start=1)]
    screen.table(("fault", *numbers), rows)
    for number, phase in zip(numbers, Phase, strict=True):
        screen.say(f"{number:>3} {phase}")
    counts = ", ".join(f"{count} {state}" for state, count in found.counts().items())
    screen.say(f"{counted(len(found.runs), 'run')}; of phase x fault x invariant: {counts}")
    for what, names in found.never().items():
        screen.say(f"{what} that no landed fault exercised: {', '.join(map(str, names)) or 'none'}")
    for problem in found.left_out:
        screen.say(f"left out: {problem}")
