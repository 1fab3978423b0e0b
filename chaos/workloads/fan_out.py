"""A fan-out of trials, twice: `clean`, then `storm`, where every second one is armed to crash.

An armed one ends itself in mid-run on its first attempt, between two checkpoints.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from chaos.model import JobRequest, JsonMap
from chaos.schedule import Draw

SCRIPT = Path(__file__).resolve().parents[1] / "payloads" / "trial.py"
TRIALS = 16
STEPS = 100
EVERY = 10
SAMPLES = 3000
LEASE_S = 3.0
WAYS = ("exit", "kill")


def way(trial: int) -> str:
    """Return how a trial crashes on its first attempt: exit, kill, or none."""
    return "none" if trial % 2 else WAYS[trial // 2 % len(WAYS)]


def crash_step(seed: int, trial: int) -> int:
    """Return the step at which an armed trial crashes: never one that is saved."""
    tens = Draw(seed).integer(f"crash-{trial:02d}", "tens", 2, STEPS // 10 - 2)
    return tens * EVERY + Draw(seed).integer(f"crash-{trial:02d}", "ones", 1, EVERY - 1)


@dataclass(frozen=True, slots=True)
class FanOut:
    """TRIALS trials of some seconds each."""

    name: str = "fan_out"

    def jobs(self, seed: int, count: int) -> Mapping[str, JobRequest]:
        """Return both jobs: alike but for the armed trials."""
        del count
        clean = [_params(trial, "none", 0) for trial in range(TRIALS)]
        storm = [_params(trial, way(trial), crash_step(seed, trial)) for trial in range(TRIALS)]
        return {
            "clean": _request(seed, clean),
            "storm": _request(seed, storm, starts_after="clean", like="clean"),
        }


def _params(trial: int, crash: str, step: int) -> JsonMap:
    return {"trial": trial, "crash": crash, "at": step}


def _request(
    seed: int, params: list[JsonMap], starts_after: str | None = None, like: str | None = None
) -> JobRequest:
    options = {
        "--steps": STEPS,
        "--every": EVERY,
        "--samples": SAMPLES,
        "--seed": seed % 2**32,
        "--trial": "{trial}",
        "--crash": "{crash}",
        "--crash-at": "{at}",
    }
    return JobRequest(
        name="fan-out",
        command=("python3", SCRIPT.name, *(str(w) for pair in options.items() for w in pair)),
        files={SCRIPT.name: SCRIPT.read_bytes()},
        required_outputs=("metrics.json",),
        lease_s=LEASE_S,
        keep_checkpoints=STEPS // EVERY,
        task_params=tuple(params),
        starts_after=starts_after,
        like=like,
    )


WORKLOAD = FanOut()
