"""The same sleeping tasks (16 of 0.5 s, 6 of 2 s, 4 of 5 s) are run four ways, in turn: by
`flash.submit` with parallel=1 and with its default of one task a core, by a loop of subprocesses,
and by a pool of threads, one a core, that run subprocesses. Throughput is tasks / wall x 60, from
the call until all results are there. `overhead` is (wall - ideal) / wall, where ideal counts the
intended sleeps alone, divided by the slots: it charges the start of each Python to overhead. The
long legs take two rounds at most.
"""

import math
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import flashruntime as flash
from benchmarks.comparators import bare
from benchmarks.scenario import Bench, Scenario, Taken, expect, series
from benchmarks.schema import Better, Interval, Section
from flashruntime.launch.cores import usable_cores

SCRIPT = "sleep_task.py"
LONG_ROUNDS = 2


@dataclass(frozen=True, slots=True)
class Leg:
    """So many tasks of one duration."""

    tasks: int
    task_s: float

    def rate(self, run: Callable[["Leg"], None]) -> float:
        """Return the tasks a minute of one fan-out."""
        begun_s = time.monotonic()
        run(self)
        return self.tasks / (time.monotonic() - begun_s) * 60

    def overhead(self, rate: float, slots: int) -> float:
        """Return the share of the wall-clock time that is not intended sleep."""
        wall_s = self.tasks / rate * 60
        return 1 - math.ceil(self.tasks / slots) * self.task_s / wall_s


LEGS = (Leg(16, 0.5), Leg(6, 2.0), Leg(4, 5.0))
SMOKE_LEGS = (Leg(4, 0.2),)


def run(bench: Bench) -> None:
    """Measure fan-outs of three task lengths, one task at a time and one a core."""
    source, cores = bench.source(SCRIPT), usable_cores()

    def submitted(parallel: int | None) -> Callable[[Leg], None]:
        return lambda leg: submit(source, bench.folder(), leg, parallel)

    for number, leg in enumerate(SMOKE_LEGS if bench.smoke else LEGS):
        rounds = bench.count(1) if number == 0 else min(LONG_ROUNDS, bench.count(1))
        one, default, loop, threads = (
            lambda leg=leg, way=way: leg.rate(way)
            for way in (
                submitted(1),
                submitted(None),
                lambda leg: loop_of_subprocesses(source, leg, 1),
                lambda leg: loop_of_subprocesses(source, leg, cores),
            )
        )
        arms = {"one": one, "default": default, "loop": loop, "threads": threads}
        _report(bench, leg, cores, bench.take(rounds, arms, warm_up=0))


def _report(bench: Bench, leg: Leg, cores: int, taken: Taken) -> None:
    for arm, label, slots, other in (
        ("one", "parallel=1", 1, "loop"),
        ("default", f"default parallel ({cores})", cores, "threads"),
    ):
        name = "sequential loop" if other == "loop" else f"pool of {cores} threads"
        shares = [leg.overhead(rate, slots) for rate in taken[arm]]
        others = [leg.overhead(rate, slots) for rate in taken[other]]
        bench.report(
            taken[arm],
            variant=f"{leg.tasks} x {leg.task_s:g} s, {label}",
            comparators={name: taken[other]},
            figures=[
                series("overhead", "share of wall", shares),
                series(f"overhead of the {name}", "share of wall", others),
            ],
            notes=[
                f"ideal: {slots * 60 / leg.task_s:g} tasks/min (sleeps alone, {slots} slots)",
                "no warm-up round: each fan-out starts fresh processes anyway",
            ],
        )


def submit(source: Path, output_dir: Path, leg: Leg, parallel: int | None) -> None:
    """Run the tasks of a leg as one fan-out."""
    workload = flash.CommandWorkload(
        [sys.executable, SCRIPT, "{seconds}"],
        source=source,
        task_params=[{"seconds": leg.task_s}] * leg.tasks,
    )
    run = flash.submit(workload, output_dir, watch=False, parallel=parallel)
    expect(run.state is flash.RunState.SUCCEEDED, f"the fan-out {run.state}: {run.reason}")


def loop_of_subprocesses(source: Path, leg: Leg, workers: int) -> None:
    """Run the tasks of a leg as bare subprocesses, `workers` at a time."""
    argv = [sys.executable, SCRIPT, str(leg.task_s)]
    with ThreadPoolExecutor(workers) as pool:
        list(pool.map(lambda _: bare.run(argv, source), range(leg.tasks)))


SCENARIO = Scenario(
    name="fanout_throughput",
    section=Section.PERFORMANCE,
    hypothesis=(
        "A fan-out runs at the rate of its slots: one after another like a plain loop with "
        "parallel=1, and one task a core by default, with an overhead that fades as tasks grow."
    ),
    method=__doc__,
    unit="tasks/min",
    better=Better.HIGHER,
    budget_s=300,
    interval=Interval(start="the call of flash.submit", end="its return, all tasks done"),
    run=run,
)
