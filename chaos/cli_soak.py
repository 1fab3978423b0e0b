"""`python -m chaos soak`: the full counts, an hour or several; a stopped one goes on."""

import argparse
import json
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from chaos import registry
from chaos.cli_leaks import VICTIMS
from chaos.console import Screen
from chaos.heal import heal
from chaos.model import CannotRun, JsonValue, UsageError, Verdict
from chaos.plants import PLANTS
from chaos.ports import Machine
from chaos.runner import DEFAULT_OUT, EXIT_CANNOT_RUN, EXIT_INTERRUPTED, EXIT_OF
from chaos.signals import Interrupted, Signals
from chaos.soak import (
    VERDICTS,
    Stage,
    Step,
    Tally,
    landed,
    load,
    measured,
    read_verdicts,
    runs,
    save,
    step_of,
    tally,
)
from chaos.sweep import SUBJECTS
from chaos.words import counted

SCHEMA = "chaos_soak_v1"
FOLDER = DEFAULT_OUT / "soak"


def stages() -> list[Stage]:
    """Return what a soak consists of, the shorter stages first."""
    quick = [each.name for each in registry.experiments() if each.quick]
    long = [
        each.name
        for each in registry.experiments()
        if not each.quick and each.name != "random_storm"
    ]
    what = [*SUBJECTS]
    return [
        Stage("sweep", "saves swept", len(what), 1, lambda n: ["sweep", "--what", what[n - 1]]),
        Stage("power", "complete explorations", 1, 1, lambda _n: ["powerloss", "--all"]),
        Stage("experiments", "long experiments", len(long), 1,
              lambda n: ["run", long[(n - 1) % len(long)], "--seed", str(n)], runs),
        Stage("plants", "planted bugs caught", len(PLANTS), 1,
              lambda n: ["plants", PLANTS[n - 1].name]),
        Stage("storm", "storms of 10 minutes", 1, 1,
              lambda n: ["run", "random_storm", "--count", "300", "--seed", str(n)], runs),
        Stage("recovery", "recoveries", 300, 20,
              lambda n: ["run", "lease_recovery", "--count", "20", "--seed", str(n)], measured),
        Stage("window", "kills in the write window", 500, 20,
              lambda n: ["run", "checkpoint_integrity", "--count", "20", "--seed", str(n)], landed),
        Stage("clean", "runs without a false alarm", 200, len(quick),
              lambda n: ["run", *quick, "--seed", str(n)], runs),
        Stage("leaks", "SIGKILLs of the harness", 100, len(VICTIMS),
              lambda n: ["leaks", "--count", str(len(VICTIMS)), "--seed", str(1000 * n)], landed),
    ]  # fmt: skip


def add_verb(verbs: Any) -> None:
    """Declare the verb and its options."""
    verb = verbs.add_parser("soak", help="the full counts: hours; run again to go on")
    verb.set_defaults(verb=soak)
    names = [stage.name for stage in stages()]
    verb.add_argument(
        "--stage", action="append", choices=names, help="default: all; may be repeated"
    )
    verb.add_argument(
        "--share", type=float, default=1.0, help="of every count, above 0 to 1; default: 1"
    )
    verb.add_argument("--minutes", type=float, help="begin no step after so long")
    verb.add_argument("--out", type=Path, default=FOLDER, help="default: %(default)s")
    verb.add_argument("--json", action="store_true", help="machine-readable, on stdout")


def soak(arguments: argparse.Namespace, screen: Screen, machine: Callable[[], Machine]) -> int:
    """Carry out what is left; exit like `run`, 3 also where a goal was not reached."""
    if not 0 < arguments.share <= 1:
        raise UsageError(f"--share {arguments.share:g}: give a number above 0, at most 1")
    chosen = [each for each in stages() if each.name in (arguments.stage or [each.name])]
    wanted = [stage.scaled(arguments.share) for stage in chosen]
    engine = machine()
    _same_build(arguments.out, engine.images(None))
    limit_s = float("inf") if arguments.minutes is None else 60 * arguments.minutes
    with Signals(screen.say):
        found, code = carry_on(wanted, arguments.out, limit_s, engine, screen)
    return _finish(arguments, found, code, screen)


def carry_on(
    wanted: Sequence[Stage], out: Path, limit_s: float, engine: Machine, screen: Screen
) -> tuple[list[Tally], int]:
    """Run steps until every stage is over, the time is, or one could not run; say which: a code."""
    ends_at = time.monotonic() + limit_s
    heal(engine, [*out.glob("*/"), *out.glob("*/*-*/*/")], screen.say)
    steps = load(out)
    if steps:
        screen.say(f"going on after {counted(len(steps), 'step')} in {out}")
    while found := _next(tally(wanted, steps)):
        if time.monotonic() >= ends_at:
            screen.say(f"{limit_s / 60:g} minutes are over")
            break
        step = carry_out(*found, out, screen)
        if step.exit_code not in VERDICTS:
            code = EXIT_INTERRUPTED if step.exit_code == EXIT_INTERRUPTED else EXIT_CANNOT_RUN
            return tally(wanted, steps), code
        save(out, step)
        steps.append(step)
    return tally(wanted, steps), 0


def _same_build(folder: Path, images: Any) -> None:
    """Remember the images of the first call; raise CannotRun where today's are others."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "images.json"
    told = json.dumps(dict(images), sort_keys=True, indent=1) + "\n"
    if not path.exists():
        path.write_text(told, "utf-8")
    elif path.read_text("utf-8") != told:
        raise CannotRun(
            f"{folder} was begun with other images than today's, and figures of two builds are "
            "not added up; begin anew with --out FOLDER, or remove it"
        )


def _next(found: Sequence[Tally]) -> tuple[Stage, int] | None:
    open_ones = [each for each in found if not each.over]
    return (open_ones[0].stage, len(open_ones[0].steps) + 1) if open_ones else None


def carry_out(stage: Stage, number: int, out: Path, screen: Screen) -> Step:
    """Run one step as a process of its own; what an interrupted one left is replaced."""
    folder = out / f"{stage.name}-{number:03d}"
    if folder.exists():
        shutil.rmtree(folder)
    folder.mkdir(parents=True)
    words = [*stage.words(number), "--out", str(folder)]
    screen.say(f"== {stage.name}, step {number}: python -m chaos {' '.join(words)}")
    began = time.monotonic()
    console = folder / "console.log"
    exit_code = _run(words, console)
    step = step_of(stage, number, exit_code, time.monotonic() - began, read_verdicts(folder))
    screen.say(
        f"   exit code {step.exit_code}, {step.reached} {stage.unit}, {step.seconds:.0f} s"
        + (f"; violated: {'; '.join(step.violated)}" if step.violated else "")
        + ("" if step.exit_code == 0 else f"; see {console}")
    )
    return step


def _run(words: Sequence[str], console: Path) -> int:
    """Run a command of this harness to its end; an interrupt reaches it, and its healing ends."""
    with console.open("wb") as stream:
        process = subprocess.Popen(
            [sys.executable, "-m", "chaos", *words], stdout=stream, stderr=stream
        )
        try:
            return process.wait()
        except Interrupted:
            process.send_signal(signal.SIGINT)
            process.wait()
            return EXIT_INTERRUPTED


def _finish(arguments: argparse.Namespace, found: list[Tally], code: int, screen: Screen) -> int:
    told: JsonValue = {
        "schema": SCHEMA,
        "share": arguments.share,
        "stages": [each.to_json() for each in found],
    }
    text = json.dumps(told, allow_nan=False, indent=1) + "\n"
    partial = arguments.out / ".soak.json"
    partial.write_text(text, "utf-8")
    partial.replace(arguments.out / "soak.json")
    if arguments.json:
        sys.stdout.write(text)
    heads = (
        "stage",
        "goal",
        "reached",
        "verdict",
        "steps",
        "unclear",
        "minutes",
        "mttd s",
        "mttr s",
    )
    screen.table(heads, [_row(each) for each in found])
    left = [each.stage.name for each in found if not each.over]
    if left:
        screen.say(f"left: {', '.join(left)}; the same command goes on")
    return code or EXIT_OF[Verdict.worst([each.verdict for each in found])]


def _row(each: Tally) -> tuple[str, ...]:
    told = each.to_json()
    return (
        each.stage.name,
        f"{each.stage.goal} {each.stage.unit}",
        str(each.reached),
        str(each.verdict),
        str(len(each.steps)),
        str(each.unclear()),
        f"{sum(step.seconds for step in each.steps) / 60:.1f}",
        _spread(told["mttd_s"]),
        _spread(told["mttr_s"]),
    )


def _spread(value: JsonValue) -> str:
    if not isinstance(value, dict):
        return "-"
    return ", ".join(f"{name} {each}" for name, each in value.items())
