"""A real coordinator: uvicorn, sockets. A death cycle: a process with an open session claims the
one task of a job, for a lease of a minute, and is killed by SIGKILL at a drawn moment; another
worker waits for work, claims it, uploads bytes and completes by their digest. The coordinator's
own events tell when, by CLOCK_MONOTONIC, so that no polling blurs them. Steady cycles of claim,
heartbeat and commit are timed in turn with an empty FastAPI application.

Composed stack: the experiment lease_recovery kills containers; its history and the logs tell.
"""

import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

from benchmarks import composed, coordinators, detection
from benchmarks.scenario import PAYLOADS, Bench, Scenario, Taken, expect, series
from benchmarks.schema import BenchError, Interval, Section, Target
from chaos.schedule import Draw
from flashruntime.client import CoordinatorClient
from flashruntime.protocol.events import Event, EventType
from flashruntime.testing import CoordinatorProcess

SEED = 23
SMOKE_DEATHS, SMOKE_CYCLES = 1, 5
NS = 1e9
DETECTION = "detection (MTTD)"
RECOVERY = Interval(
    start="the coordinator's event of the next claim",
    end="its event that the result was accepted",
)


@dataclass(frozen=True, slots=True)
class Death:
    """One death cycle, in seconds."""

    detected: float
    claimed: float
    recovered: float
    whole: float


def run(bench: Bench) -> None:
    """Measure detection, recovery and the round trips of a lease."""
    if bench.target is Target.COMPOSE:
        on_containers(bench)
        return
    with (
        CoordinatorProcess(bench.folder("coordinator")) as coordinator,
        coordinator.client() as client,
    ):
        _steady(bench, client)
        _deaths(bench, client)


def _steady(bench: Bench, client: CoordinatorClient) -> None:
    count = SMOKE_CYCLES if bench.smoke else bench.count(20)
    job_id = client.submit(coordinators.spec(count + 1, detection.LEASE_S)).job_id
    with coordinators.floor(bench.folder() / "log") as floor:
        ours = lambda: coordinators.cycle(client, job_id)  # noqa: E731 (an arm)
        taken = bench.take(count, {"ours": ours, "floor": floor})
    for name, what in (
        ("claim", "claim round trip"),
        ("heartbeat", "heartbeat round trip"),
        ("commit", "upload and complete"),
    ):
        bench.report(
            [1_000 * each for each in taken[f"ours.{name}"]],
            variant=what,
            unit="ms",
            comparators={coordinators.FLOOR: _milli(taken, "floor.call")},
            notes=["a claim and a commit are on disk before they are answered; nothing is in the "
                   "empty handler"],
        )  # fmt: skip
        ends = "the call of the client", "its return"
        bench.amend(interval=Interval(start=ends[0], end=ends[1]))


def _milli(taken: Taken, name: str) -> list[float]:
    return [1_000 * each for each in taken[name]]


def _deaths(bench: Bench, client: CoordinatorClient) -> None:
    count = SMOKE_DEATHS if bench.smoke else bench.count(4)
    draw = Draw(SEED)
    deaths = []
    for number in range(count):
        after_s = draw.integer(f"death-{number}", "after", 50, 2_000) / 1_000
        deaths.append(_death(client, after_s))
        bench.say(f"death {number + 1}/{count}")
    detected = [each.detected for each in deaths]
    claims = [series("death to claimed again", "s", [each.claimed for each in deaths])]
    start = "the return of the kill call"
    detection.report(bench, detected, start, claims, variant=DETECTION)
    bench.report(
        [each.recovered for each in deaths],
        variant="recovery (MTTR), claim to accepted result",
        figures=[series("death to accepted result", "s", [each.whole for each in deaths])],
        notes=[
            "the result is committed the honest way: its bytes are uploaded and completed by their "
            "sha256, which the coordinator checks",
            "the task itself takes no time here: a real one adds its own",
            "uploaded bytes and every change of the ledger are synced to the disk before the "
            "answer: the disk decides this figure",
        ],
    )
    bench.amend(interval=RECOVERY)


def _death(client: CoordinatorClient, after_s: float) -> Death:
    job_id = client.submit(coordinators.spec(1, detection.LEASE_S)).job_id
    argv = [sys.executable, str(PAYLOADS / "lease_holder.py"), client.base_url, job_id]
    environment = {"PYTHONPATH": str(Path(__file__).parents[2])}
    holder = subprocess.Popen(argv, stdout=subprocess.PIPE, text=True, env=environment)
    try:
        assert holder.stdout is not None  # noqa: S101 (opened as a pipe)
        expect(holder.stdout.readline().startswith("claimed"), "the holder claimed nothing")
        time.sleep(after_s)
    finally:
        holder.kill()
        died_ns = time.monotonic_ns()
        holder.communicate()
    lease = coordinators.claimed(client, job_id, wait_s=30)
    coordinators.committed(client, lease)
    events = client.events(job_id).items
    first = next(each for each in events if each.type is EventType.LEASE_CLAIMED)
    return Death(
        detected=(_at(events, EventType.TASK_REQUEUED, first.lease_id) - died_ns) / NS,
        claimed=(_at(events, EventType.LEASE_CLAIMED, lease.lease_id) - died_ns) / NS,
        recovered=(
            _at(events, EventType.TASK_COMMIT_ACCEPTED, lease.lease_id)
            - _at(events, EventType.LEASE_CLAIMED, lease.lease_id)
        )
        / NS,
        whole=(_at(events, EventType.TASK_COMMIT_ACCEPTED, lease.lease_id) - died_ns) / NS,
    )


def _at(events: list[Event], kind: EventType, lease_id: str | None) -> int:
    for event in events:
        if event.type is kind and event.lease_id == lease_id:
            return event.mono_ns
    raise BenchError(f"lease {lease_id} has no event {kind}")


def on_containers(bench: Bench) -> None:
    """Read detection and recovery of killed worker containers."""
    count = SMOKE_DEATHS if bench.smoke else bench.count(4)
    readings = composed.runs(bench, "lease_recovery", 1, count=count, seed=SEED)
    for text in composed.notes(readings):
        bench.note(text)
    started = [
        seconds
        for reading in readings
        for seconds in reading.logs.spans("lease_claimed", "attempt_started")
    ]
    claims = [series("death to claimed again", "s", composed.together(readings, "reclaim_s"))]
    start = "the call that kills the container"
    detected = composed.together(readings, "mttd_s")
    detection.report(bench, detected, start, claims, variant=DETECTION)
    bench.report(
        composed.together(readings, "mttr_s"),
        variant="recovery (MTTR), death to the next attempt's first step",
        figures=[
            series("claim to accepted result, its work included", "s",
                   composed.together(readings, "commit_s")),
            series("claim to attempt started, by the workers' logs", "s", started),
        ],
        notes=["log times are those of the monotonic clock, as the worker read it"],
    )  # fmt: skip
    bench.amend(
        interval=Interval(
            start="the call that kills the container",
            end="the first step that the next attempt reports, as observed",
            resolution_s=0.1,
        )
    )


SCENARIO = Scenario(
    name="lease_recovery_latency",
    section=Section.RESILIENCE,
    hypothesis=(
        "A dead holder is noticed within 0.1 s whatever its lease, and the coordinator's own part "
        "in the recovery is milliseconds."
    ),
    method=__doc__,
    unit="s",
    budget_s=180,
    targets=composed.BOTH,
    run=run,
)
