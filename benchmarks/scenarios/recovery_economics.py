"""Each pair trains the same model, killed by SIGKILL after the same step of its first attempt, in
turn: `flash.submit` with one restart, which resumes from the newest checkpoint, and a user who has
no checkpoints and starts the whole job again, both for real. The time runs from the start to a
finished job. Saved seconds are the paired differences, signed. Steps not recomputed are counted:
the step from which the second attempt went on.
"""

import time

import flashruntime as flash
from benchmarks.comparators import bare
from benchmarks.faults import CrashyTrainer
from benchmarks.scenario import Bench, Scenario, cleared, expect, series
from benchmarks.schema import Better, Interval, Section
from benchmarks.stats import differences

TINY = CrashyTrainer("tiny", steps=80, every=20, crash_at=50)
REAL = CrashyTrainer("transformer", steps=24, every=6, crash_at=20)
SMOKE = CrashyTrainer("smoke", steps=12, every=4, crash_at=10)


def run(bench: Bench) -> None:
    """Measure what a crash costs with auto-resume and with a rerun from zero."""
    _model(bench, "tiny model", TINY, bench.count(2))
    name, trainer = ("small model", SMOKE) if bench.smoke else ("transformer of 54 M", REAL)
    _model(bench, name, trainer, bench.count(1))


def _model(bench: Bench, name: str, trainer: CrashyTrainer, rounds: int) -> None:
    taken = bench.take(
        rounds,
        {"flash": lambda: resumed(bench, trainer), "rerun": lambda: rerun(bench, trainer)},
        warm_up=0,
    )
    about = f"{trainer.steps} steps, killed after step {trainer.crash_at}"
    bench.report(
        taken["flash.wall"],
        variant=f"{name}, start to finish",
        unit="s",
        better=Better.LOWER,
        comparators={"rerun from zero": taken["rerun"]},
        figures=[
            series("steps not recomputed", "steps", taken["flash.kept"]),
            series("steps recomputed", "steps", taken["flash.redone"]),
        ],
        notes=[f"{about}, a checkpoint every {trainer.every}"],
    )
    bench.report(
        differences(taken["rerun"], taken["flash.wall"]),
        variant=f"{name}, saved",
        notes=[
            f"{about}; negative: checkpoints and restart cost more than the recomputed steps, as "
            "they do where a step costs next to nothing",
            "the saving grows with the work between the last checkpoint and the start",
        ],
    )


def resumed(bench: Bench, trainer: CrashyTrainer) -> dict[str, float]:
    """Return the seconds of a run that is killed once, and what it kept and redid."""
    output_dir = bench.folder()
    workload = flash.CommandWorkload(trainer.argv("flash"), source=trainer.source(bench))
    begun_s = time.monotonic()
    run = flash.submit(workload, output_dir, watch=False, max_restarts=1)
    took_s = time.monotonic() - begun_s
    expect(run.state is flash.RunState.SUCCEEDED, f"the run {run.state}: {run.reason}")
    expect(len(run.attempts) == 2, f"{len(run.attempts)} attempts instead of 2")
    kept = float(str(run.trials[0]["start"]))
    cleared(output_dir)
    return {"wall": took_s, "kept": kept, "redone": trainer.crash_at - kept}


def rerun(bench: Bench, trainer: CrashyTrainer) -> float:
    """Return the seconds of a bare run that is killed, and of the whole job after it."""
    place = trainer.source(bench)
    begun_s = time.monotonic()
    bare.run(trainer.argv("bare"), place, ok=False)
    expect(not (place / "metrics.json").exists(), "the bare run was not killed")
    bare.run(trainer.argv("bare", crash=False), place)
    return time.monotonic() - begun_s


SCENARIO = Scenario(
    name="recovery_economics",
    section=Section.PERFORMANCE,
    hypothesis=(
        "A killed run that resumes from its checkpoint finishes sooner than one that starts again, "
        "and recomputes no step that a checkpoint holds."
    ),
    method=__doc__,
    unit="s saved",
    better=Better.HIGHER,
    budget_s=300,
    interval=Interval(start="the start of the first attempt", end="the end of the last one"),
    needs_torch=True,
    run=run,
)
