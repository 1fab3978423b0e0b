"""Each round kills one training by SIGKILL while it saves 8 MB, seen on the disk as parts without a
manifest. It survived when `flash.submit(max_restarts=1)` ended well from a verified step before
the torn one (the trainer compares every byte) and its newest checkpoint verifies by hash.
Comparators save as much into one file, overwritten or renamed into place, are killed in the same
save after the same delay, and the file is loaded. Only kills inside a window count.

Composed stack: the chaos experiment of that name kills containers; its history is counted.
"""

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import flashruntime as flash
from benchmarks import composed, faults, host, shares
from benchmarks.comparators import bare
from benchmarks.faults import Strike, Trial, Victim
from benchmarks.scenario import PAYLOADS, Bench, Scenario, cleared, series
from benchmarks.schema import Better, Section, Target
from flashruntime.checkpoint import Kind, inspect

SEED = 7
MIB = 8
STEPS = 8
TRIAL = Trial(steps=STEPS, every=1, samples=20, ballast_mib=MIB)
STRUCK = (2, 6)
MOST_DELAY_MS = 3
SMOKE_KILLS = 2
RUN_S = 60.0
POLL_S = 0.0002
LATEST, SCRATCH = "latest.pt", "latest.pt.tmp"


@dataclass(slots=True)
class Kills:
    """What became of the kills of one arm; `survived` holds those inside a window."""

    survived: list[bool] = field(default_factory=list)
    missed: int = 0
    resumed: list[float] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)
    left: list[Path] = field(default_factory=list)


def run(bench: Bench) -> None:
    """Measure the share of kills inside the write window that a training survives."""
    if bench.target is Target.COMPOSE:
        on_containers(bench)
        return
    count = SMOKE_KILLS if bench.smoke else bench.count(4)
    ours = Kills()
    source = TRIAL.source(bench)
    naive = {
        f"{lib} {label}": Naive(bench, lib, way)
        for lib, label, way in (
            ("torch", "in place", "place"),
            ("torch", "and rename", "rename"),
            ("pickle", "in place", "place"),
        )
        if lib == "pickle" or host.installed("torch")
    }
    arms: list[Callable[[Strike], None]] = [
        lambda strike: resumed(bench, source, strike, ours),
        *(arm.killed for arm in naive.values()),
    ]
    for number, strike in enumerate(faults.strikes(SEED, count, STRUCK, MOST_DELAY_MS)):
        for arm in arms if number % 2 == 0 else reversed(arms):
            arm(strike)
        bench.say(f"kill {number + 1}/{count}")
    told = [note for name, arm in naive.items() for note in arm.loaded(name)]
    if not host.installed("torch"):
        told.append("torch.save: not measured: torch is not installed here")
    shares.report(
        bench,
        ours.survived,
        {name: arm.kills.survived for name, arm in naive.items()},
        figures=[series("resumed from", "step", ours.resumed)] if ours.resumed else [],
        notes=[*_told(ours, count), *told, *faults.findings(ours.wrong)],
    )


def resumed(bench: Bench, source: Path, strike: Strike, kills: Kills) -> None:
    """Kill one run in a save and see whether it goes on from a verified step before."""
    pids, output = bench.folder("pids"), bench.folder()
    workload = flash.CommandWorkload(TRIAL.told(), source=source, env=faults.pids(pids))
    run = flash.submit(workload, output, wait=False, max_restarts=1, watch=False)
    victim = Victim.first(pids)
    hit = victim.kill_in_save(strike)
    run.wait(RUN_S)
    if hit is None or not hit.torn:
        kills.missed += 1
    else:
        found = [each for each in inspect(victim.ckpt_dir) if each.step is not None]
        newest = found[0] if found else None
        verified = newest is not None and newest.kind is Kind.VALID and newest.step == STEPS
        step = run.trials[0].get("resumed_from")
        before = isinstance(step, int) and 0 < step < hit.step
        done = run.state is flash.RunState.SUCCEEDED
        kills.survived.append(done and verified and before)
        kills.resumed += [float(step)] if isinstance(step, int) else []
        if not kills.survived[-1]:
            kills.wrong.append(
                f"step {hit.step} was torn: the run {run.state}, went on from {step}, its newest "
                f"checkpoint is {newest.kind if newest else 'missing'}"
            )
    run.cancel()
    cleared(output)


class Naive:
    """A training that saves into one file, killed in the same save."""

    def __init__(self, bench: Bench, lib: str, way: str) -> None:
        self.kills = Kills()
        self._bench, self._lib, self._way = bench, lib, way
        self._file = SCRATCH if way == "rename" else LATEST

    def killed(self, strike: Strike) -> None:
        """Kill one run while its file is shorter than a whole one, and keep what it left."""
        place = self._bench.folder()
        argv = [sys.executable, str(PAYLOADS / "naive.py"), self._lib, self._way]
        process = subprocess.Popen(
            [*argv, str(STEPS), str(MIB)], cwd=place, stdout=subprocess.PIPE, text=True
        )
        try:
            whole = _until_saving(process, strike.step)
            seen = _until_short(place / self._file, whole, process)
            time.sleep(strike.delay_s if seen else 0)
        finally:
            process.kill()
            process.communicate()
        left = _size(place / self._file)
        if seen and left is not None and left < whole:
            self.kills.left.append(place / LATEST)
        else:
            self.kills.missed += 1
            cleared(place)

    def loaded(self, name: str) -> list[str]:
        """Load what the kills left; return what must be said of it."""
        left = self.kills.left
        failures: list[str] = []
        if left:
            argv = [sys.executable, str(PAYLOADS / "naive.py"), "load", self._lib]
            printed = bare.run([*argv, *map(str, left)], self._bench.folder())
            failures = json.loads(printed.rstrip().rsplit("\n", maxsplit=1)[-1])
        self.kills.survived += [not failure for failure in failures]
        classes = {failure: failures.count(failure) for failure in sorted({*failures} - {""})}
        modes = ", ".join(f"{failure} x {times}" for failure, times in classes.items())
        for path in left:
            cleared(path.parent)
        return [
            f"{name}: {len(failures)} kills in mid-write, {self.kills.missed} missed; "
            f"{sum(map(bool, failures))} files did not load ({modes or 'no failure'})"
        ]


def _until_saving(process: subprocess.Popen[str], step: int) -> int:
    """Read until the save of `step` begins; return how many bytes a whole file has."""
    whole = 0
    assert process.stdout is not None  # noqa: S101 (opened as a pipe)
    for line in process.stdout:
        word, number, *size = line.split()
        if word == "saved":
            whole = int(size[0])
        elif int(number) == step:
            return whole
    return whole


def _until_short(path: Path, whole: int, process: subprocess.Popen[str]) -> bool:
    """Wait until the file is there and not whole; False where the process ends before."""
    while process.poll() is None:
        size = _size(path)
        if size is not None and size < whole:
            return True
        time.sleep(POLL_S)
    return False


def _size(path: Path) -> int | None:
    try:
        return os.stat(path).st_size  # noqa: PTH116 (polled without a pause)
    except FileNotFoundError:
        return None


def _told(kills: Kills, count: int) -> list[str]:
    return [
        f"{len(kills.survived)} of {count} kills landed inside the window and count; "
        f"{kills.missed} missed it and are in no number",
        "the window is open for a large part of each step by design (8 MB, a save at every step): "
        "the claim is that each hit was survived, not that hitting was hard",
        "a hit is a kill while parts lie there without a manifest; the part itself may have been "
        "whole",
        "kills come by SIGKILL, which loses no page cache: what a power cut does to a rename "
        "without fsync is not measured",
    ]


def on_containers(bench: Bench) -> None:
    """Count the kills of the chaos experiment of the same name."""
    count = SMOKE_KILLS if bench.smoke else bench.count(4)
    readings = composed.runs(bench, "checkpoint_integrity", 1, count=count)
    hits = int(sum(composed.singles(readings, "kills_in_window")))
    missed = int(sum(composed.singles(readings, "windows_missed")))
    rates = composed.singles(readings, "integrity_rate")
    good = round(rates[0] * hits) if rates else 0
    shares.report(
        bench,
        [True] * good + [False] * (hits - good),
        {},
        figures=[series("resumed from", "step", composed.together(readings, "resumed_from"))],
        notes=[
            f"{hits} kills of a worker's container landed inside the window and count; {missed} "
            "missed it and are in no number",
            *composed.notes(readings),
        ],
    )


SCENARIO = Scenario(
    name="checkpoint_integrity",
    section=Section.RESILIENCE,
    hypothesis=(
        "Whatever is killed in the middle of a save, the next attempt goes on from a checkpoint "
        "that verifies by hash; a file that is overwritten in place is torn by the same kills."
    ),
    method=__doc__,
    unit="share of kills survived",
    better=Better.HIGHER,
    budget_s=300,
    targets=composed.BOTH,
    run=run,
)
