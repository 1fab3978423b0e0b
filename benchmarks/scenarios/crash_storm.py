"""A fan-out of 16 trials, every even one armed to end itself once between two saves, by exit code
or SIGKILL, at a drawn step; the same unarmed; and armed in a loop of bare subprocesses that
starts a crashed one again from nothing. The ways take turns, one trial at a time and with the
default. All is counted from the run: an attempt executed the steps from where it took over to
its last one.

Composed stack: the chaos experiment of that name, 16 trials on 4 workers, half of them armed, and
workers killed under the others; all is counted from its history.
"""

import json
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import flashruntime as flash
from benchmarks import composed, faults, stats
from benchmarks.comparators import bare
from benchmarks.faults import Trial
from benchmarks.scenario import Bench, Scenario, cleared, series
from benchmarks.schema import Better, Interval, Section, Target
from chaos.workloads.fan_out import EVERY, crash_step, way
from flashruntime.launch.cores import usable_cores

SEED = 11
TRIALS, SMOKE_TRIALS = 16, 2
TRIAL = Trial(steps=100, every=EVERY, samples=100)
LOOP = "loop that starts again from nothing"


@dataclass(frozen=True, slots=True)
class Storm:
    """What became of a fan-out; `kept` are steps that a checkpoint saved the next attempt."""

    wall_s: float
    completed: int
    crashed: int
    useful: int
    executed: int
    kept: int

    def measured(self) -> dict[str, float]:
        """Return it as numbers; shares of no work are 0."""
        useful = max(1, self.useful)
        return {
            "wall": self.wall_s,
            "completed": self.completed,
            "crashed": self.crashed,
            "goodput": self.useful / max(1, self.executed),
            "lower": self.useful / max(1, self.useful + self.kept),
            "redone": max(0, self.executed - self.useful) / useful,
        }


def run(bench: Bench) -> None:
    """Measure a fan-out in which half of the trials crash once."""
    if bench.target is Target.COMPOSE:
        on_containers(bench)
        return
    count = SMOKE_TRIALS if bench.smoke else TRIALS
    source, cores = TRIAL.source(bench), usable_cores()
    for slots, variant in ((1, "parallel=1"), (cores, f"default parallel ({cores})")):
        parallel = 1 if slots == 1 else None
        taken = bench.take(
            bench.count(1),
            {
                "storm": _flash(bench, source, armed(count), parallel),
                "clean": _flash(bench, source, unarmed(count), parallel),
                "loop": partial(_loop, bench, source, armed(count), slots),
            },
            warm_up=0,
        )
        _report(bench, variant, count, taken)


def armed(count: int) -> list[dict[str, object]]:
    """Return the parameters of so many trials, the even ones armed."""
    return [
        {"trial": number, "crash": way(number), "at": crash_step(SEED, number)}
        for number in range(count)
    ]


def unarmed(count: int) -> list[dict[str, object]]:
    """Return the same trials without a crash."""
    return [{**each, "crash": "none"} for each in armed(count)]


def _flash(
    bench: Bench, source: Path, params: list[dict[str, object]], parallel: int | None
) -> Callable[[], dict[str, float]]:
    return lambda: submitted(bench, source, params, parallel).measured()


def _loop(
    bench: Bench, source: Path, params: list[dict[str, object]], slots: int
) -> dict[str, float]:
    return looped(bench, source, params, slots).measured()


def submitted(
    bench: Bench, source: Path, params: list[dict[str, object]], parallel: int | None
) -> Storm:
    """Run the trials as one fan-out and count what its record says."""
    output = bench.folder()
    argv = TRIAL.argv(crash="{crash}", at="{at}", trial="{trial}")
    workload = flash.CommandWorkload(argv, source=source, task_params=params)
    begun_s = time.monotonic()
    run = flash.submit(workload, output, watch=False, parallel=parallel, max_restarts=1)
    wall_s = time.monotonic() - begun_s
    kept = sum(attempt.resumed_from or 0 for attempt in run.attempts)
    done = [trial for trial in run.trials if trial["state"] == flash.RunState.SUCCEEDED]
    storm = Storm(
        wall_s=wall_s,
        completed=len(done),
        crashed=len({a.task for a in run.attempts if a.state is flash.RunState.FAILED}),
        useful=sum(int(str(trial["steps"])) for trial in done),
        executed=sum((attempt.step or 0) for attempt in run.attempts) - kept,
        kept=kept,
    )
    cleared(output)
    return storm


def looped(bench: Bench, source: Path, params: Sequence[dict[str, object]], slots: int) -> Storm:
    """Run the trials as bare subprocesses, a crashed one again from nothing."""
    place = bench.folder("loop")
    begun_s = time.monotonic()
    with ThreadPoolExecutor(slots) as pool:
        lost = list(pool.map(lambda each: _from_nothing(place, source, each), params))
    wall_s = time.monotonic() - begun_s
    cleared(place)
    useful = TRIAL.steps * len(params)
    return Storm(wall_s, len(params), sum(map(bool, lost)), useful, useful + sum(lost), kept=0)


def _from_nothing(place: Path, source: Path, params: dict[str, object]) -> int:
    """Run one trial until it ends well; return the steps that its crash lost."""
    number, lost = int(str(params["trial"])), 0
    argv = TRIAL.argv(crash=str(params["crash"]), at=int(str(params["at"])), trial=number)
    argv[1] = str(source / argv[1])
    for restart in range(2):
        cwd = place / f"{number}-{restart}"
        cwd.mkdir()
        printed = bare.run(argv, cwd, {"FLASHML_RESTART_COUNT": str(restart)}, ok=restart == 1)
        crash = _crash_in(printed)
        if crash is None:
            break
        lost += crash
    return lost


def _crash_in(printed: str) -> int | None:
    """Return the step at which a trial said that it crashes."""
    for line in printed.splitlines():
        if line.startswith("{") and '"crash"' in line:
            told = json.loads(line)
            if told.get("event") == "crash":
                return int(told["step"])
    return None


def _report(bench: Bench, variant: str, count: int, taken: dict[str, list[float]]) -> None:
    walls = [taken["storm.wall"], taken["clean.wall"], taken["loop.wall"]]
    penalty = [storm / clean - 1 for storm, clean in zip(walls[0], walls[1], strict=True)]
    short = sum(completed < count for completed in taken["storm.completed"])
    by_hand = count - stats.median(taken["storm.completed"])
    bench.report(
        taken["storm.completed"],
        variant=f"completed of {count}, {variant}",
        better=Better.HIGHER,
        figures=[
            series("crashed on the first attempt", "trials", taken["storm.crashed"]),
            series("crashed in the clean sweep", "trials", taken["clean.crashed"]),
        ],
        notes=[
            "counted from the run: a storm that completes fewer is reported with that number",
            f"trials left for a human: {by_hand:g}; bare torchrun, modelled: one restart by hand "
            f"for each of {stats.median(taken['storm.crashed']):g} crashes",
            *faults.findings([f"{short} storms did not complete all trials"] if short else []),
        ],
    )
    bench.report(
        taken["storm.goodput"],
        variant=f"goodput, {variant}",
        unit="useful/executed",
        better=Better.HIGHER,
        comparators={LOOP: taken["loop.goodput"]},
        figures=[
            series("lower bound (kept steps counted as lost)", "share", taken["storm.lower"]),
            series("steps done again", "share of useful", taken["storm.redone"]),
        ],
        notes=[
            "executed steps are counted: of each attempt, from where it took over to the last step "
            "that it told",
            "the lower bound charges each resume with all steps before it, as if they had been "
            "done again; they were not",
            f"{LOOP}: the same trials with the same crashes, run for real",
        ],
    )
    bench.report(
        taken["storm.wall"],
        variant=f"wall, {variant}",
        unit="s",
        better=Better.LOWER,
        comparators={"the same without crashes": walls[1], LOOP: walls[2]},
        figures=[series("penalty of the storm", "share of the clean wall", penalty)],
        notes=[
            "a trial takes well under a second of work, so starting processes decides the wall "
            "time; what resuming saves grows with the work between a save and a crash",
        ],
    )


def on_containers(bench: Bench) -> None:
    """Count what the chaos experiment of the same name shows, one run a repeat."""
    readings = composed.runs(bench, "crash_storm", bench.count(1))
    told = composed.notes(readings)
    tasks = composed.singles(readings, "tasks")
    bench.report(
        composed.singles(readings, "completed"),
        variant=f"completed of {max(tasks, default=0):g}",
        better=Better.HIGHER,
        figures=[series("crashed on an attempt", "trials", composed.singles(readings, "crashed"))],
        notes=told,
    )
    bench.report(
        composed.singles(readings, "goodput"),
        variant="goodput",
        unit="useful/executed",
        better=Better.HIGHER,
        figures=[
            series("lower bound", "share", composed.singles(readings, "goodput_lower_bound")),
            series("steps done again", "share", composed.singles(readings, "recompute_fraction")),
        ],
        notes=["an upper bound: steps of a killed attempt after its last word are unknown"],
    )
    bench.report(
        composed.singles(readings, "penalty"),
        variant="penalty",
        unit="share of the clean wall",
        better=Better.LOWER,
        notes=["the clean fan-out runs first, on the same workers"],
    )


SCENARIO = Scenario(
    name="crash_storm",
    section=Section.RESILIENCE,
    hypothesis=(
        "A fan-out in which half of the trials crash once completes all of them with no human, and "
        "does again only the steps since the last save of each."
    ),
    method=__doc__,
    unit="trials",
    better=Better.HIGHER,
    budget_s=480,
    interval=Interval(start="the call of flash.submit", end="its return, all trials ended"),
    targets=composed.BOTH,
    run=run,
)
