"""One coordinator a size, each a uvicorn process of its own with a real ledger on disk. A job of so
many tasks is submitted, timed at the client; then claim, heartbeat and commit are timed, one call
after another over one connection, in turn among the sizes and with a call of an empty FastAPI
application that runs the same way. So the sizes differ by what the ledger holds and nothing else.
"""

import time
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial

from benchmarks import coordinators, stats
from benchmarks.scenario import Arm, Bench, Scenario, Taken, series
from benchmarks.schema import Interval, Section
from flashruntime.client import CoordinatorClient
from flashruntime.testing import CoordinatorProcess

SIZES = (100, 1_000, 5_000, 10_000, 100_000)
SMOKE_SIZES = (100, 1_000)
LEASE_S = 60.0
TIMEOUT_S = 300.0
SMOKE_CYCLES, MOST_CYCLES = 3, 90
MILLI = 1_000.0
TIMES = (("claim", "claim"), ("heartbeat", "heartbeat"), ("commit", "upload and complete"))


@dataclass(frozen=True, slots=True)
class Filled:
    """A coordinator that holds so many tasks."""

    tasks: int
    client: CoordinatorClient
    job_id: str
    submit_s: float


def run(bench: Bench) -> None:
    """Measure the round trips of a coordinator that holds 100 to 100,000 tasks."""
    count = SMOKE_CYCLES if bench.smoke else min(MOST_CYCLES, bench.count(16))
    with ExitStack() as stack:
        floor = stack.enter_context(coordinators.floor(bench.folder() / "log"))
        filled = [_filled(bench, stack, size) for size in (SMOKE_SIZES if bench.smoke else SIZES)]
        arms: dict[str, Arm] = {
            str(each.tasks): partial(coordinators.cycle, each.client, each.job_id)
            for each in filled
        }
        taken = bench.take(count, {**arms, "floor": floor}, warm_up=2)
    for each in filled:
        _report(bench, each, taken)


def _filled(bench: Bench, stack: ExitStack, tasks: int) -> Filled:
    process = stack.enter_context(CoordinatorProcess(bench.folder(f"coordinator-{tasks}")))
    client = stack.enter_context(process.client(timeout_s=TIMEOUT_S))
    spec = coordinators.spec(tasks, LEASE_S)
    begun_s = time.monotonic()
    job_id = client.submit(spec).job_id
    took_s = time.monotonic() - begun_s
    bench.say(f"{tasks} tasks submitted in {took_s:.2f} s")
    return Filled(tasks, client, job_id, took_s)


def _report(bench: Bench, filled: Filled, taken: Taken) -> None:
    floor = [MILLI * each for each in taken["floor.call"]]
    for name, what in TIMES:
        bench.report(
            [MILLI * each for each in taken[f"{filled.tasks}.{name}"]],
            variant=f"{what}, {filled.tasks} tasks",
            comparators={coordinators.FLOOR: floor},
            notes=["the median is the p50 of so many calls, one after another, by one client"],
        )
    bench.report(
        [filled.submit_s],
        variant=f"submit, {filled.tasks} tasks",
        unit="s",
        figures=[series("tasks a second", "tasks/s", [filled.tasks / filled.submit_s])],
        notes=[
            "one submission: the request with all parameters is checked, and every task is on disk "
            "before the answer",
            f"an empty answer over HTTP took {stats.median(floor):.3g} ms in the same run",
        ],
    )


SCENARIO = Scenario(
    name="coordinator_scale",
    section=Section.PERFORMANCE,
    hypothesis=(
        "A claim or a heartbeat takes as long with 100,000 tasks in the ledger as with 100, and a "
        "submission grows in proportion to its tasks."
    ),
    method=__doc__,
    unit="ms",
    budget_s=120,
    interval=Interval(start="the call of the client", end="its return"),
    run=run,
)
