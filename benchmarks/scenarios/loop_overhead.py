"""One process trains the same model in segments of equal steps, one segment for each way to save,
in turn: no flashruntime at all, `ft.checkpoint` that never saves, `ft.checkpoint` every so many
steps, `torch.save` with fsync at the same steps, and DCP's async_save of a copy. The cost of a
checkpoint is (segment that saves - segment that does not) / saves, signed, in the seconds of the
training loop; starting the process and importing torch are outside. `until settled` adds the wait
for what was still being written when the segment ended.
"""

from benchmarks.comparators import bare
from benchmarks.scenario import PAYLOADS, Bench, Scenario, cleared, series
from benchmarks.schema import Interval, Section

Taken = dict[str, list[float]]
TINY_STEPS, TINY_EVERY, TINY_PER_REPEAT = 1000, 50, 4
STEPS_AUTO, EVERY_AUTO = 4, 0


def run(bench: Bench) -> None:
    """Measure what a step and a checkpoint cost the loop, on a tiny model and a real one."""
    steps, every = (100, 20) if bench.smoke else (TINY_STEPS, TINY_EVERY)
    tiny = measured(bench, "tiny", bench.count(TINY_PER_REPEAT), steps, every)
    _per_step(bench, tiny, steps)
    _per_checkpoint(bench, "tiny model", tiny, steps // every)
    model = "smoke" if bench.smoke else "transformer"
    taken = measured(bench, model, bench.count(1), STEPS_AUTO, EVERY_AUTO)
    steps, every = int(taken["steps"][0]), int(taken["every"][0])
    millions = taken["parameters"][0] / 1e6
    bench.note(
        f"{steps} steps of about {taken['step_s'][0]:.2g} s, a checkpoint of parameters and "
        f"AdamW state every {every}"
    )
    _per_checkpoint(bench, f"transformer of {millions:.3g} M parameters", taken, steps // every)


def measured(bench: Bench, model: str, rounds: int, steps: int, every: int) -> Taken:
    """Run the segments of one model in a process of its own; facts are series of one value."""
    place, tree = bench.folder("others"), bench.folder("ckpt")
    env = {"FLASHML_CKPT_DIR": str(tree), "FLASHML_OUTPUT_DIR": str(bench.folder("out"))}
    bench.say(f"{model}: {rounds} rounds")
    found = bare.result(
        PAYLOADS / "loop.py", model, rounds, steps, every, place, cwd=place, env=env
    )
    cleared(tree)
    about: dict[str, float] = found.pop("about")
    return {**found, **{name: [value] for name, value in about.items()}}


def _per_step(bench: Bench, taken: Taken, steps: int) -> None:
    ours = [(a - b) / steps * 1e6 for a, b in _pairs(taken, "flash_none", "vanilla")]
    bench.report(
        ours,
        variant="tiny model, a step without a save",
        unit="us/step",
        figures=[
            series("loop without flashruntime", "s", taken["vanilla"]),
            series("loop with ft.checkpoint that never saves", "s", taken["flash_none"]),
        ],
        notes=["at or below zero: below the noise between segments"],
    )


def _per_checkpoint(bench: Bench, model: str, taken: Taken, saves: int) -> None:
    def cost(arm: str, base: str) -> list[float]:
        return [(a - b) / saves * 1e3 for a, b in _pairs(taken, arm, base)]

    bench.report(
        cost("flash", "flash_none"),
        variant=f"{model}, a checkpoint",
        comparators={
            "torch.save and fsync": cost("torch_save", "vanilla"),
            "DCP async_save of a copy": cost("dcp_async", "vanilla"),
        },
        figures=[
            series("until settled", "ms/checkpoint", cost("flash.settled", "flash_none")),
            series("loop without flashruntime", "s", taken["vanilla"]),
            series("loop with checkpoints", "s", taken["flash"]),
        ],
        notes=[
            f"{saves} checkpoints a segment; at or below zero: below the noise between segments",
            "torch.save overwrites one file in place and verifies nothing; ours hashes, syncs "
            "and keeps the earlier checkpoint",
        ],
    )


def _pairs(taken: Taken, a: str, b: str) -> list[tuple[float, float]]:
    return list(zip(taken[a], taken[b], strict=True))


SCENARIO = Scenario(
    name="loop_overhead",
    section=Section.PERFORMANCE,
    hypothesis=(
        "The helper costs a training step microseconds, and a checkpoint costs the loop less than "
        "a plain torch.save with fsync."
    ),
    method=__doc__,
    unit="ms/checkpoint",
    budget_s=300,
    interval=Interval(start="the first step of a segment", end="the end of its last step"),
    needs_torch=True,
    run=run,
)
