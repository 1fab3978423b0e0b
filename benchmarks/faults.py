"""Failures on purpose: trainers that crash at a known step, the same for every arm."""

import sys
from dataclasses import dataclass
from pathlib import Path

from benchmarks.scenario import Bench

SCRIPT = "train.py"


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
