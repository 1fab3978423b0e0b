"""Each round runs a script that stamps CLOCK_MONOTONIC as its first statement three ways:
`flash.submit` into a new output directory (cold), `flash.submit` again into one that is reused
(warm), and a bare `Popen` of the same interpreter and script. The time is from just before the
call to the stamp. The phases come from the run's own journal: from the call to the recorded start
of the attempt, and from there to the stamp.
"""

import json
import subprocess
import sys
import time
from pathlib import Path

import flashruntime as flash
from benchmarks.scenario import Bench, Scenario, expect, series
from benchmarks.schema import Interval, Section

PER_REPEAT = 4
SCRIPT = "stamp.py"


def run(bench: Bench) -> None:
    """Measure submit to the first line of user code, cold and warm, beside a bare Popen."""
    source, bare = bench.source(SCRIPT), bench.source(SCRIPT)
    reused = bench.folder("reused")
    taken = bench.take(
        bench.count(PER_REPEAT),
        {
            "cold": lambda: submitted(source, bench.folder()),
            "warm": lambda: submitted(source, reused),
            "popen": lambda: popen(bare),
        },
    )
    bench.report(
        taken["cold.total"],
        variant="cold",
        comparators={"bare popen": taken["popen"]},
        figures=[
            series("phase: call to attempt recorded", "s", taken["cold.launch"]),
            series("phase: attempt recorded to first line", "s", taken["cold.child"]),
        ],
        notes=[
            "cold: an output directory that was never used; the interpreter of the job is a new "
            "process either way",
            "a constant cost of a launch: invisible in a run of minutes, it matters for very short "
            "jobs and wide fan-outs",
        ],
    )
    bench.report(
        taken["warm.total"],
        variant="warm",
        comparators={"bare popen": taken["popen"], "cold": taken["cold.total"]},
        notes=["warm: the same output directory again, so that its history is read as well"],
    )


def submitted(source: Path, output_dir: Path) -> dict[str, float]:
    """Return the seconds of one submission, in all and by phase."""
    begun_ns = time.monotonic_ns()
    workload = flash.CommandWorkload([sys.executable, SCRIPT], source=source)
    run = flash.submit(workload, output_dir, watch=False)
    expect(run.state is flash.RunState.SUCCEEDED, f"the run {run.state}: {run.reason}")
    stamp_ns = int(str(run.trials[0]["first_ns"]))
    started_ns = next(event.mono_ns for event in run.events if event.lease_id)
    return {
        "total": (stamp_ns - begun_ns) / 1e9,
        "launch": (started_ns - begun_ns) / 1e9,
        "child": (stamp_ns - started_ns) / 1e9,
    }


def popen(source: Path) -> float:
    """Return the seconds from a bare Popen to the stamp."""
    begun_ns = time.monotonic_ns()
    process = subprocess.Popen([sys.executable, SCRIPT], cwd=source)
    expect(process.wait() == 0, "the bare Popen failed")
    stamp = json.loads((source / "metrics.json").read_text(encoding="utf-8"))
    return float(stamp["first_ns"] - begun_ns) / 1e9


SCENARIO = Scenario(
    name="submit_latency",
    section=Section.PERFORMANCE,
    hypothesis=(
        "flash.submit starts user code nearly as fast as a bare Popen: the rest of it is one "
        "process launch, a small constant next to any real training."
    ),
    method=__doc__,
    unit="s",
    budget_s=30,
    interval=Interval(start="the call of flash.submit", end="the first statement of user code"),
    run=run,
)
