"""A tree of three equal checkpoints of random bytes is written once; then each round a new attempt
begins on it and resumes (lineage, manifest, read and verify), in the process of the measurement
with a warm page cache. Beside it each round reads the newest checkpoint's files without checking
them, and hashes their bytes in memory on one core and on all: no verified read can be faster than
these. How many checkpoints were read is counted from the kernel's count of bytes read.
"""

from benchmarks.comparators import bare
from benchmarks.scenario import PAYLOADS, Bench, Scenario, cleared, series
from benchmarks.schema import Better, Interval, Section

MIB, SMOKE_MIB, CHECKPOINTS, PER_REPEAT = 512, 16, 3, 2
BESIDE = ("read alone", "sha256 on one core", "sha256 on all cores")


def run(bench: Bench) -> None:
    """Measure the verified read of the newest of three checkpoints."""
    mib = SMOKE_MIB if bench.smoke else MIB
    place, tree = bench.folder(), bench.folder("ckpt")
    rounds = bench.count(PER_REPEAT)
    script = PAYLOADS / "resume.py"
    taken = bare.result(script, mib, CHECKPOINTS, rounds, tree, cwd=place)
    cleared(tree)

    def rate(name: str) -> list[float]:
        return [mib / 1024 / seconds for seconds in taken[name]]

    bench.report(
        rate("flash"),
        variant=f"{mib} MiB, verified read",
        comparators={name: rate(name) for name in BESIDE},
        figures=[series("time of the whole resume", "s", taken["flash"])],
        notes=["the page cache is warm: this is the cost of verifying, not that of the disk"],
    )
    bench.report(
        taken["flash.read"],
        variant="checkpoints read",
        unit="checkpoints",
        better=Better.LOWER,
        notes=[f"the tree holds {CHECKPOINTS}; 1 means that only the newest was read"],
    )


SCENARIO = Scenario(
    name="resume_verify",
    section=Section.PERFORMANCE,
    hypothesis=(
        "A resume reads one checkpoint however many there are, and verifies it as fast as all "
        "cores together can hash."
    ),
    method=__doc__,
    unit="GiB/s",
    better=Better.HIGHER,
    budget_s=60,
    interval=Interval(start="the call of Attempt.resume", end="its return with verified bytes"),
    run=run,
)
