"""Each pair launches the same two-rank DDP script (gloo, one step) once by `flash.submit` of
`flashruntime.integrations.pytorch.ddp`, once by bare torchrun with the same number of ranks, in
alternating order. Rank 0 stamps CLOCK_MONOTONIC after its first step; the time is from just before
the launch to that stamp. The overhead is the paired difference, signed, not clamped. `to the end`
is until the launcher has returned.
"""

import json
import sys
import time
from pathlib import Path

import flashruntime as flash
from benchmarks.comparators import bare
from benchmarks.scenario import PAYLOADS, Bench, Scenario, expect, series
from benchmarks.schema import Interval, Section
from benchmarks.stats import differences
from flashruntime.integrations.pytorch import ddp

RANKS = 2
PER_REPEAT = 2
SCRIPT = "ddp_step.py"


def run(bench: Bench) -> None:
    """Measure submit to the first DDP step beside bare torchrun."""
    source = bench.source(SCRIPT)
    taken = bench.take(
        bench.count(PER_REPEAT),
        {
            "flash": lambda: submitted(source, bench.folder()),
            "torchrun": lambda: torchrun(bench.source(SCRIPT)),
        },
    )
    bench.report(
        taken["flash.first"],
        variant="submit to first step",
        comparators={"bare torchrun": taken["torchrun.first"]},
        figures=[
            series("to the end", "s", taken["flash.end"]),
            series("bare torchrun, to the end", "s", taken["torchrun.end"]),
        ],
        notes=[
            "torchrun is started through a wrapper of a few lines, which chooses the older store "
            "where PyTorch was built without libuv: there, torchrun alone cannot start at all",
        ],
    )
    bench.report(
        differences(taken["flash.first"], taken["torchrun.first"]),
        variant="overhead over bare torchrun",
        notes=["paired differences, signed; negative: flash.submit was faster"],
    )


def submitted(source: Path, output_dir: Path) -> dict[str, float]:
    """Return the seconds of one launch by flash.submit."""
    begun_ns = time.monotonic_ns()
    run = flash.submit(ddp(SCRIPT, source, nproc_per_node=RANKS), output_dir, watch=False)
    ended_ns = time.monotonic_ns()
    expect(run.state is flash.RunState.SUCCEEDED, f"the run {run.state}: {run.reason}")
    expect(run.trials[0].get("ranks") == RANKS, "the ranks did not train together")
    first_ns = int(str(run.trials[0]["first_ns"]))
    return {"first": (first_ns - begun_ns) / 1e9, "end": (ended_ns - begun_ns) / 1e9}


def torchrun(source: Path) -> dict[str, float]:
    """Return the seconds of one launch by torchrun."""
    argv = [
        sys.executable, str(PAYLOADS / "torchrun.py"), "--standalone", "--local-addr=127.0.0.1",
        f"--nproc-per-node={RANKS}", SCRIPT,
    ]  # fmt: skip
    begun_ns = time.monotonic_ns()
    bare.run(argv, source)
    ended_ns = time.monotonic_ns()
    found = json.loads((source / "metrics.json").read_text(encoding="utf-8"))
    return {"first": (found["first_ns"] - begun_ns) / 1e9, "end": (ended_ns - begun_ns) / 1e9}


SCENARIO = Scenario(
    name="launch_overhead",
    section=Section.PERFORMANCE,
    hypothesis="flash.submit of a DDP job reaches its first step no later than bare torchrun.",
    method=__doc__,
    unit="s",
    budget_s=240,
    interval=Interval(start="just before the launch", end="the first DDP step of rank 0 is done"),
    needs_torch=True,
    run=run,
)
