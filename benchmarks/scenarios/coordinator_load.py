"""One coordinator a size, each a uvicorn process of its own with a real ledger on disk, which is
given a job of so many tasks. Client processes over raw HTTP connections then carry tasks from the
claim to the accepted result (claim, heartbeat, upload, complete), in rounds of equal length, in
turn among the sizes and with the same four calls on empty FastAPI handlers. After each round, and
outside of its time, as many tasks are submitted as were done. At the end so many leases are held
at once, and all clients renew them. Resident memory is what the kernel says of the process.
"""

from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from benchmarks import coordinators, stats
from benchmarks.scenario import Arm, Bench, Scenario, Taken
from benchmarks.schema import Better, Section
from flashruntime.client import CoordinatorClient
from flashruntime.testing import CoordinatorProcess

SIZES = (100, 1_000, 10_000, 100_000)
SMOKE_SIZES = (100, 1_000)
CLIENTS = (1, 8)
LEASE_S = 600.0
TIMEOUT_S = 300.0
CYCLES = {1: 48, 8: 12}
HELD = (80, 10_000)
SMOKE_HELD = (80,)
BEATS = 100
FLOOR = "the same four calls on empty FastAPI handlers"
FLOOR_CALL = "the same call on an empty FastAPI handler"
MIB = 1024
MILLI = 1_000.0


@dataclass(frozen=True, slots=True)
class Filled:
    """A coordinator that holds so many tasks, and its clients."""

    tasks: int
    process: CoordinatorProcess
    client: CoordinatorClient
    clients: coordinators.Clients


def run(bench: Bench) -> None:
    """Measure full cycles a second, durable heartbeats a second, and resident memory."""
    rounds = 2 if bench.smoke else min(30, bench.count(4))
    with ExitStack() as stack:
        port, _ = stack.enter_context(coordinators.empty_application(bench.folder() / "log"))
        floor = coordinators.Clients(port, max(CLIENTS))
        stack.callback(floor.close)
        filled = [_filled(bench, stack, size) for size in (SMOKE_SIZES if bench.smoke else SIZES)]
        for clients in CLIENTS:
            arms: dict[str, Arm] = {
                str(each.tasks): partial(_cycles, each, clients) for each in filled
            }
            arms["floor"] = partial(_rate, floor, clients)
            taken = bench.take(rounds, arms, warm_up=2)
            for each in filled:
                _report_cycles(bench, each, clients, taken)
                if clients == 1:
                    _report_calls(bench, each, taken)
        _report_memory(bench, filled[-1])
        for held in SMOKE_HELD if bench.smoke else HELD:
            _report_beats(bench, filled[-1], held, rounds)


def _filled(bench: Bench, stack: ExitStack, tasks: int) -> Filled:
    process = stack.enter_context(CoordinatorProcess(bench.folder(f"coordinator-{tasks}")))
    client = stack.enter_context(process.client(timeout_s=TIMEOUT_S))
    client.submit(coordinators.spec(tasks, LEASE_S))
    clients = coordinators.Clients(process.port, max(CLIENTS))
    stack.callback(clients.close)
    return Filled(tasks, process, client, clients)


def _cycles(filled: Filled, clients: int) -> Mapping[str, float]:
    measured = _rate(filled.clients, clients)
    filled.client.submit(coordinators.spec(clients * CYCLES[clients], LEASE_S))
    return measured


def _rate(clients: coordinators.Clients, count: int) -> Mapping[str, float]:
    told = clients.do("cycle", CYCLES[count], count)
    calls = {name: MILLI * stats.median(times) for name, times in told.calls.items()}
    return {"cycles": count * CYCLES[count] / told.seconds, **calls}


def _report_cycles(bench: Bench, filled: Filled, clients: int, taken: Taken) -> None:
    bench.report(
        taken[f"{filled.tasks}.cycles"],
        variant=f"full cycles, {_named(clients)}, {filled.tasks} tasks queued",
        comparators={FLOOR: taken["floor.cycles"]},
        notes=[
            "a cycle is a claim, a heartbeat, the upload of a small file and its commit; each is "
            "on disk before its answer",
        ],
    )


def _report_calls(bench: Bench, filled: Filled, taken: Taken) -> None:
    for name in ("claim", "heartbeat"):
        bench.report(
            taken[f"{filled.tasks}.{name}"],
            variant=f"{name}, 1 client, {filled.tasks} tasks queued",
            unit="ms",
            better=Better.LOWER,
            comparators={FLOOR_CALL: taken[f"floor.{name}"]},
            notes=["each sample is the median of a round; the change is on disk before the answer"],
        )


def _report_memory(bench: Bench, filled: Filled) -> None:
    bench.report(
        [_resident_mib(filled.process.pid)],
        variant=f"resident memory, {filled.tasks} tasks queued",
        unit="MiB",
        better=Better.LOWER,
        notes=["after the submissions and cycles above; one process, one reading"],
    )


def _named(clients: int) -> str:
    return "1 client" if clients == 1 else f"{clients} clients"


def _resident_mib(pid: int) -> float:
    lines = Path(f"/proc/{pid}/status").read_text(encoding="ascii").splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmRSS")) / MIB


def _report_beats(bench: Bench, filled: Filled, held: int, rounds: int) -> None:
    clients = max(CLIENTS)
    filled.clients.do("hold", held // clients)
    beat: Callable[[], float] = lambda: (  # noqa: E731 (an arm)
        clients * BEATS / filled.clients.do("beat", BEATS).seconds
    )
    taken = bench.take(rounds, {"beats": beat})
    bench.report(
        taken["beats"],
        variant=f"durable heartbeats, {clients} clients, {held} live leases",
        unit="heartbeats/s",
        notes=["every renewal is on disk before its answer; clients renew their leases in turn"],
    )


SCENARIO = Scenario(
    name="coordinator_load",
    section=Section.PERFORMANCE,
    hypothesis=(
        "A coordinator carries tasks from claim to result at 0.6 of the rate of the same four "
        "calls on empty FastAPI handlers, and as fast with 100,000 queued tasks as with 100."
    ),
    method=__doc__,
    unit="cycles/s",
    budget_s=240,
    better=Better.HIGHER,
    run=run,
)
