"""The chaos experiment lease_recovery kills the container of a worker in mid-lease, four times a
repeat, each in a job of its own with a lease of a minute on an idle fleet, at a checkpoint drawn
from a seed; workers reach the coordinator through Toxiproxy alone. Detection is
from the call that kills the container, to the coordinator's event that its task
can be claimed again, in CLOCK_MONOTONIC of one host.
"""

from benchmarks import composed, detection
from benchmarks.scenario import Bench, Scenario, series
from benchmarks.schema import Section

SEED = 101
KILLS_A_RUN = 20


def run(bench: Bench) -> None:
    """Measure how soon the kill of a container is noticed."""
    count = 1 if bench.smoke else bench.count(4)
    sizes = [min(KILLS_A_RUN, count - done) for done in range(0, count, KILLS_A_RUN)]
    readings = [
        composed.run(bench, "lease_recovery", seed=SEED + number, count=size)
        for number, size in enumerate(sizes)
    ]
    for text in composed.notes(readings):
        bench.note(text)
    bench.note(
        "four kills a repeat, about 6 s each: `--scenario detection_latency --repeats 25` makes "
        "it 100, in 10 minutes"
    )
    figures = [series("death to claimed again", "s", composed.together(readings, "reclaim_s"))]
    start = "the call that kills the container"
    detected = composed.together(readings, "mttd_s")
    detection.report(bench, detected, start, figures, variant="")


SCENARIO = Scenario(
    name="detection_latency",
    section=Section.RESILIENCE,
    hypothesis=(
        "The death of a worker's container is noticed within 0.1 s in half of all cases and 0.25 s "
        "in 99 of 100, whatever the lease."
    ),
    method=__doc__,
    unit="s",
    budget_s=480,
    targets=composed.COMPOSE_ONLY,
    run=run,
)
