"""One process holds a state of so many MiB (parameters of 4 MiB) and saves it in every way, in
turn, each round in the opposite order; each arm syncs what it wrote before the next one begins.
Stall is how long the call holds the training thread; durable is from the call until the checkpoint
is complete and fsynced: for flashruntime until its manifest is in place (looked for every 0.2 ms),
for the others until their call or future returns, with an fsync after torch.save. The floors are a
copy into warm buffers (stall) and a write of the same bytes with fsync (durable).
"""

from pathlib import Path

from benchmarks.comparators import bare
from benchmarks.host import installed
from benchmarks.scenario import PAYLOADS, Bench, Scenario, cleared, series
from benchmarks.schema import Interval, Section

SIZES_MIB = {8: 4, 128: 2, 512: 1, 2048: 1}
MOST_ROUNDS = {2048: 3}
COPIES = 5
OTHERS = {
    "torch.save": "torch_save",
    "DCP save": "dcp_save",
    "DCP async_save": "dcp_async",
    "DCP async_save of a copy": "dcp_async_copied",
    "copy into warm buffers": "memcpy",
    "raw write and fsync": "raw_write",
    "sha256 alone": "sha256",
}


def run(bench: Bench) -> None:
    """Measure stall and time until durable at four sizes, beside every other way to save."""
    isolation = _isolation(bench)
    for mib, per_repeat in ({8: 1} if bench.smoke else SIZES_MIB).items():
        if available_mib() < COPIES * mib:
            reason = f"needs {COPIES * mib} MiB of free memory, {available_mib()} are there"
            for variant in _variants(mib):
                bench.report(None, variant=variant, notes=[reason])
            continue
        rounds = min(bench.count(per_repeat), MOST_ROUNDS.get(mib, 1000))
        _report(bench, mib, _taken(bench, mib, rounds), isolation)


def _variants(mib: int) -> tuple[str, str]:
    return f"{mib} MiB, stall", f"{mib} MiB, until durable"


def _taken(bench: Bench, mib: int, rounds: int) -> dict[str, list[float]]:
    place = bench.folder("others")
    tree, outputs = bench.folder("ckpt"), bench.folder("out")
    env = {"FLASHML_CKPT_DIR": str(tree), "FLASHML_OUTPUT_DIR": str(outputs)}
    bench.say(f"{mib} MiB, {rounds} rounds")
    taken = bare.result(PAYLOADS / "stall.py", mib, rounds, place, cwd=place, env=env)
    cleared(tree)
    return taken


def _report(bench: Bench, mib: int, taken: dict[str, list[float]], isolation: list[str]) -> None:
    for part, variant in zip(("stall", "durable"), _variants(mib), strict=True):
        ours = taken[f"flash.{part}"]
        others = {name: taken.get(f"{arm}.{part}") for name, arm in OTHERS.items()}
        rate = [mib / 1024 / each for each in ours]
        bench.report(
            ours,
            variant=variant,
            comparators=others,
            figures=[series("rate", "GiB/s", rate)] if part == "durable" else [],
            notes=[*isolation, f"torch {installed('torch')}; the disk is that of the host section"],
        )


def _isolation(bench: Bench) -> list[str]:
    """Return what kept the state as it was when the save was asked for, checked in this run."""
    place, tree = bench.folder("check"), bench.folder("ckpt")
    env = {"FLASHML_CKPT_DIR": str(tree), "FLASHML_OUTPUT_DIR": str(place)}
    script = PAYLOADS / "snapshot_check.py"
    found = bare.result(script, "save", place, cwd=place, env=env)
    found |= bare.result(script, "load", place, cwd=place, env=env)
    told = {
        True: "keeps the state of the moment of the call",
        False: "does NOT keep it: what the next step overwrites is saved, so that its stall "
        "lacks the copy that a checkpoint needs",
    }
    cleared(place)
    return [
        f"checked by overwriting the parameters right after the call: {name} {told[found[arm]]}"
        for name, arm in (("flashruntime", "flash"), ("DCP async_save", "dcp_async"))
    ] + ["DCP async_save with cached staging buffers needs pinned memory, thus an accelerator"]


def available_mib() -> int:
    """Return the memory that can be had without swapping, page cache included."""
    lines = Path("/proc/meminfo").read_text(encoding="ascii").splitlines()
    fields = {line.split(":")[0]: line.split()[1] for line in lines}
    return int(fields["MemAvailable"]) // 1024


SCENARIO = Scenario(
    name="checkpoint_stall",
    section=Section.PERFORMANCE,
    hypothesis=(
        "A checkpoint holds the training thread for little more than one copy in memory, and is "
        "durable nearly as soon as its bytes can be written and synced at all."
    ),
    method=__doc__,
    unit="s",
    budget_s=300,
    interval=Interval(
        start="the call of ft.checkpoint",
        end="its return (stall), or the manifest in place (durable)",
        resolution_s=0.0002,
    ),
    needs_torch=True,
    run=run,
)
