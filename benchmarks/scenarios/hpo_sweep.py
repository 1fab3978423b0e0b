"""The same eight trials, each of which imports torch and fits a small model, are run as four
scripts in turn: by flashruntime with its default of one trial a core, by flashruntime one trial at
a time, by a loop of subprocesses, and by Ray Tune where it is installed (it brings up a cluster of
its own on this machine). The time is that of the whole script, its own imports included. Setup
lines are counted by difflib: what a sweep script has that the trial itself has not.
"""

import difflib
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path

from benchmarks.comparators import bare, frameworks
from benchmarks.scenario import PAYLOADS, Bench, Scenario, expect
from benchmarks.schema import Interval, Section

SNIPPETS = Path(__file__).with_name("snippets")
TRIAL = PAYLOADS / "trial.py"
SWEEPS = {"flashruntime": "hpo_flash.py", "loop": "hpo_loop.py", "ray.tune": "hpo_ray.py"}
TRIALS, SMOKE_TRIALS = "range(8)", "range(2)"
SUBMIT = 'output_dir="results"'


def run(bench: Bench) -> None:
    """Measure a sweep of eight trials that import torch, and the lines that set it up."""
    taken = bench.take(
        bench.count(1),
        {
            "flash": _sweep(bench, "hpo_flash.py"),
            "one": _sweep(bench, "hpo_flash.py", (SUBMIT, f"{SUBMIT}, parallel=1")),
            "loop": _sweep(bench, "hpo_loop.py"),
            "ray": _sweep(bench, "hpo_ray.py"),
        },
        warm_up=0,
    )
    beside = {"loop of subprocesses": taken["loop"], "ray.tune": taken.get("ray")}
    notes = [
        "no warm-up round: the first round finds torch in the page cache as the others do",
        "ray.tune runs its trials in worker processes that it keeps; starting its cluster is in "
        "the time of the script, as a user waits for it",
    ]
    bench.report(taken["flash"], variant="default parallel", comparators=beside, notes=notes)
    bench.report(taken["one"], variant="parallel=1", comparators=beside, notes=notes)
    lines = {name: setup_lines(SNIPPETS / script) for name, script in SWEEPS.items()}
    bench.report(
        [lines.pop("flashruntime")],
        variant="setup lines",
        counted=True,
        unit="lines",
        comparators={name: [count] for name, count in lines.items()},
        notes=[
            "counted in benchmarks/scenarios/snippets/, each of which cites its source; the count "
            "does not vary",
            *(["ray.tune: counted, not run"] if "ray" not in taken else []),
        ],
    )


def _sweep(bench: Bench, script: str, change: tuple[str, str] | None = None) -> Callable[[], float]:
    """Return the arm that runs a sweep script, with one place of it changed."""

    def measure() -> float:
        ray = script == SWEEPS["ray.tune"]
        python = frameworks.python("ray") if ray else sys.executable
        text = (SNIPPETS / script).read_text(encoding="utf-8")
        if change:
            text = text.replace(*change)
        if bench.smoke:
            text = text.replace(TRIALS, SMOKE_TRIALS)
        place = bench.source(TRIAL.name, text={script: text})
        path = {"PATH": f"{Path(python).parent}{os.pathsep}{os.environ.get('PATH', os.defpath)}"}
        begun_s = time.monotonic()
        printed = bare.run([python, script], place, {**path, **frameworks.ENV} if ray else path)
        took_s = time.monotonic() - begun_s
        expect("finished" in printed, f"{script} did not finish: {printed[-500:]}")
        return took_s

    return measure


def setup_lines(script: Path) -> float:
    """Return how many lines of code a sweep script has that the trial has not."""
    trial, sweep = _code(TRIAL), _code(script)
    changed = difflib.ndiff(trial, sweep)
    return float(sum(line.startswith("+ ") for line in changed))


def _code(path: Path) -> list[str]:
    lines = (line.strip() for line in path.read_text(encoding="utf-8").splitlines())
    return [line for line in lines if line and not line.startswith("#")]


SCENARIO = Scenario(
    name="hpo_sweep",
    section=Section.PERFORMANCE,
    hypothesis=(
        "A sweep takes fewer lines than a loop by hand or ray.tune, and far less time than a loop "
        "of subprocesses that each import torch."
    ),
    method=__doc__,
    unit="s",
    budget_s=400,
    interval=Interval(start="the start of the sweep's script", end="its exit, all trials done"),
    needs_torch=True,
    run=run,
)
