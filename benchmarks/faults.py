"""Failures on purpose: trainers that crash at a known step, kills in a save, corrupted parts.

Where to strike is drawn from a seed, the same for ours and the comparator.
"""

import json
import os
import select
import signal
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from benchmarks.scenario import PAYLOADS, Bench
from benchmarks.schema import BenchError
from chaos.payloads import __file__ as chaos_payloads
from chaos.schedule import Draw
from chaos.targets.inside import flip, watch

SCRIPT = "train.py"
TRIAL = Path(chaos_payloads).with_name("trial.py")
TOLD = PAYLOADS / "told.py"
WAIT_S = 60.0
POLL_S = 0.002


@dataclass(frozen=True, slots=True)
class CrashyTrainer:
    """A torch trainer that is killed by SIGKILL after step `crash_at` of its first attempt."""

    model: str
    steps: int
    every: int
    crash_at: int

    def source(self, bench: Bench) -> Path:
        """Return a new directory with its script."""
        return bench.source(SCRIPT, "models.py")

    def argv(self, way: str, *, crash: bool = True) -> list[str]:
        """Return the command, `way` being flash (checkpoints, resumes) or bare."""
        crash_at = self.crash_at if crash else 0
        numbers = map(str, (self.steps, self.every, crash_at))
        return [sys.executable, SCRIPT, way, self.model, *numbers]


@dataclass(frozen=True, slots=True)
class Trial:
    """A trainer without a framework: a save at each `every` steps, `ballast_mib` more of it.

    It is the one that the chaos experiments run in containers.
    """

    steps: int
    every: int
    samples: int
    ballast_mib: int = 0

    def source(self, bench: Bench) -> Path:
        """Return a new directory with its scripts."""
        texts = {path.name: path.read_text(encoding="utf-8") for path in (TRIAL, TOLD)}
        return bench.source(text=texts)

    def argv(self, crash: str = "none", at: int | str = 0, trial: int | str = 0) -> list[str]:
        """Return the command; `crash` (import, exit, kill) says how its first attempt ends."""
        options = {
            "--steps": self.steps,
            "--every": self.every,
            "--samples": self.samples,
            "--ballast-mib": self.ballast_mib,
            "--crash": crash,
            "--crash-at": at,
            "--trial": trial,
        }
        words = [str(word) for pair in options.items() for word in pair]
        return [sys.executable, TRIAL.name, *words]

    def told(self, crash: str = "none", at: int = 0) -> list[str]:
        """Return the command of a trial that tells whom to kill (needs `pids` in its env)."""
        python, *words = self.argv(crash, at)
        return [python, TOLD.name, *words]


@dataclass(frozen=True, slots=True)
class Strike:
    """When to kill: in the save of a step, or the first later one, so long after it was seen."""

    step: int
    delay_s: float


def strikes(seed: int, count: int, steps: tuple[int, int], most_ms: int) -> tuple[Strike, ...]:
    """Return so many strikes, each drawn for itself."""
    draw = Draw(seed)
    return tuple(
        Strike(
            draw.integer(f"strike-{number}", "step", *steps),
            draw.integer(f"strike-{number}", "delay", 0, most_ms * 1_000) / 1e6,
        )
        for number in range(count)
    )


def pids(folder: Path) -> Mapping[str, str]:
    """Return the environment with which told.py says where it is."""
    return {"BENCH_PIDS": str(folder)}


@dataclass(frozen=True, slots=True)
class Hit:
    """What a kill left: `torn` are parts without a manifest, and no commit of that step."""

    step: int
    torn: bool


class Victim:
    """A running attempt, held by a descriptor so that no other process is ever hit."""

    def __init__(self, pid: int, attempt_id: str, ckpt_dir: Path) -> None:
        self.attempt_id = attempt_id
        self.ckpt_dir = ckpt_dir
        self._fd = os.pidfd_open(pid)

    @classmethod
    def first(cls, folder: Path, timeout_s: float = WAIT_S) -> "Victim":
        """Wait for the first attempt that tells in `folder`; BenchError if none does."""
        deadline = time.monotonic() + timeout_s
        while time.monotonic() < deadline:
            for path in folder.glob("*.json"):
                told = json.loads(path.read_text(encoding="utf-8"))
                if told["restart"] == 0:
                    return cls(told["pid"], told["attempt_id"], Path(told["ckpt_dir"]))
            time.sleep(POLL_S)
        raise BenchError(f"no attempt began within {timeout_s:.0f} s")

    def kill(self) -> bool:
        """Kill it and wait for its death; False where it had ended by itself."""
        alive = not select.select([self._fd], [], [], 0)[0]
        with suppress(ProcessLookupError):
            signal.pidfd_send_signal(self._fd, signal.SIGKILL)
        dead, _, _ = select.select([self._fd], [], [], WAIT_S)
        os.close(self._fd)
        if not dead:
            raise BenchError(f"attempt {self.attempt_id} survived SIGKILL")
        return alive

    def kill_after(self, checkpoints: int, timeout_s: float = WAIT_S) -> int | None:
        """Kill it once so many saves are committed; return the newest step then."""
        deadline = time.monotonic() + timeout_s
        while len(found := committed(self.ckpt_dir)) < checkpoints:
            if time.monotonic() > deadline or select.select([self._fd], [], [], POLL_S)[0]:
                self.kill()
                return None
        return max(found) if self.kill() else None

    def kill_in_save(self, strike: Strike, timeout_s: float = WAIT_S) -> Hit | None:
        """Kill it while a save has parts and no manifest; None where no save was seen."""
        request = {
            "root": str(self.ckpt_dir),
            "attempt_id": self.attempt_id,
            "min_step": strike.step,
            "timeout_s": timeout_s,
        }
        window = watch.answer(request)["window"]
        if window is None:
            self.kill()
            return None
        time.sleep(max(0.0, strike.delay_s - (time.monotonic_ns() - window["seen_ns"]) / 1e9))
        self.kill()
        step = int(window["step"])
        name = f"step-{step:06d}"
        left = watch.window(f"{self.ckpt_dir}/.staging/{self.attempt_id}/{name}")
        return Hit(step, torn=left > 0 and step not in committed(self.ckpt_dir))


def committed(ckpt_dir: Path) -> list[int]:
    """Return the steps that have a manifest."""
    found = ckpt_dir.glob("step-*/manifest.json")
    return [int(path.parent.name.removeprefix("step-")) for path in found]


def corrupt_newest(ckpt_dir: Path, seed: int) -> int:
    """Flip one bit of a part of the newest committed checkpoint; return its step."""
    draw = Draw(seed)
    request = {
        "root": str(ckpt_dir),
        "part": draw.integer("flip", "part", 0, 1_000),
        "offset": draw.integer("flip", "offset", 0, 1_000) / 1_000,
        "bit": draw.integer("flip", "bit", 0, 7),
    }
    return int(flip.answer(request)["step"])


def findings(wrong: Sequence[str]) -> list[str]:
    """Return what did not go as it should, as notes."""
    return [f"FINDING: {text}" for text in wrong]
