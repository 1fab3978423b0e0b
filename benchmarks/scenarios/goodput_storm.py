"""The chaos experiment of the same name, one run and one seed a repeat: 16 trials on 4 workers,
undisturbed first, then again while half of them crash by themselves, two workers are killed, a bit
of the newest checkpoint flips, and one worker's path is slow, closed beyond its lease, reset and
open again. Useful steps are how far the tasks came; executed steps are summed over all attempts, as
far as workers, checkpoints and faults tell. Both, and the wall-clock time of both fan-outs, are
read from the run's history.
"""

from benchmarks import composed
from benchmarks.scenario import Bench, Scenario, series
from benchmarks.schema import Better, Section
from chaos.history import items

EXPERIMENT = "goodput_storm"


def run(bench: Bench) -> None:
    """Measure the share of useful work while everything fails."""
    readings = composed.runs(bench, EXPERIMENT, bench.count(1))
    kinds: dict[str, int] = {}
    for reading in readings:
        for action in items(reading.history.one("plan")["schedule"]):
            kinds[str(action["kind"])] = kinds.get(str(action["kind"]), 0) + 1
    per_run = ", ".join(f"{kind} x {count // len(readings)}" for kind, count in kinds.items())
    completed = sum(composed.singles(readings, "completed"))
    tasks = sum(composed.singles(readings, "tasks"))
    bench.report(
        composed.singles(readings, "goodput"),
        better=Better.HIGHER,
        figures=[
            series("lower bound", "share", composed.singles(readings, "goodput_lower_bound")),
            series("steps done again", "share", composed.singles(readings, "recompute_fraction")),
            series("detection", "s", composed.together(readings, "mttd_s")),
            series("recovery", "s", composed.together(readings, "mttr_s")),
        ],
        notes=[
            f"faults of each run: {per_run}; those are the kinds of the harness that fit one run "
            "by now, not yet everything that can go wrong",
            f"{completed:g} of {tasks:g} trials completed",
            "an upper bound: steps of a killed attempt after its last word are unknown; the lower "
            "bound charges each resume with all steps before it",
            *composed.notes(readings),
        ],
    )
    bench.report(
        composed.singles(readings, "penalty"),
        variant="penalty",
        unit="share of the clean wall",
        better=Better.LOWER,
        notes=["the undisturbed fan-out runs first, on the same workers"],
    )


SCENARIO = Scenario(
    name=EXPERIMENT,
    section=Section.RESILIENCE,
    hypothesis="Under faults of every kind nearly all executed steps are useful ones.",
    method=__doc__,
    unit="useful/executed",
    better=Better.HIGHER,
    budget_s=600,
    targets=composed.COMPOSE_ONLY,
    run=run,
)
