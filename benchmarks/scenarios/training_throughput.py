"""One process trains a transformer in segments of equal steps, in turn: without saving, with
flashruntime's checkpoints, with torch.save and fsync, and with DCP's async_save of a copy, all at
the same steps. The interval is twice as long as one torch.save with fsync takes, measured at the
start, so that saves follow one another nearly without a pause and yet can end in time. Throughput
is the steps a second of the training loop against the segment without saves of the same round;
waits for a save in flight count.
"""

import json
from collections.abc import Mapping

from benchmarks.comparators import bare
from benchmarks.scenario import PAYLOADS, Bench, Scenario, cleared, series
from benchmarks.schema import Better, Interval, Section

LEAST_STEPS = 4


def run(bench: Bench) -> None:
    """Measure the share of the throughput that is left while checkpoints are written."""
    model = "smoke" if bench.smoke else "transformer"
    place, tree = bench.folder("others"), bench.folder("ckpt")
    env = {"FLASHML_CKPT_DIR": str(tree), "FLASHML_OUTPUT_DIR": str(bench.folder("out"))}
    script = PAYLOADS / "loop.py"
    words = (model, bench.count(1), LEAST_STEPS, 0, place)
    taken = bare.result(script, *words, cwd=place, env=env)
    cleared(tree)
    about: Mapping[str, float] = taken.pop("about")

    def share(arm: str) -> list[float]:
        return [a / b for a, b in zip(taken["vanilla"], taken[arm], strict=True)]

    bench.report(
        share("flash"),
        comparators={
            "torch.save and fsync": share("torch_save"),
            "DCP async_save of a copy": share("dcp_async"),
        },
        figures=[
            series("ft.checkpoint that never saves", "share", share("flash_none")),
            series("share until settled", "share", share("flash.settled")),
            series("segment without saves", "s", taken["vanilla"]),
        ],
        notes=[f"a segment: {json.dumps(about)}", "until settled: with the wait for the last save"],
    )


SCENARIO = Scenario(
    name="training_throughput",
    section=Section.PERFORMANCE,
    hypothesis=(
        "While a checkpoint is written behind it, training keeps at least nine tenths of its "
        "throughput."
    ),
    method=__doc__,
    unit="share",
    better=Better.HIGHER,
    budget_s=240,
    interval=Interval(start="the first step of a segment", end="the end of its last step"),
    needs_torch=True,
    run=run,
)
