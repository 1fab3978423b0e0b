"""64 tasks that together take about twice as long as a storm of `count` faults."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from chaos.model import JobRequest

SCRIPT = Path(__file__).resolve().parents[1] / "payloads" / "trial.py"
TASKS = 64
EVERY_S = 2.0
EVERY = 5
LEAST_STEPS = 40
STEPS_PER_FAULT = 5
SAMPLES = 3000
LEASE_S = 3.0
ATTEMPTS = 50


@dataclass(frozen=True, slots=True)
class ManyTasks:
    """A fan-out that keeps every checkpoint: what retention removes nobody can judge."""

    name: str = "many_tasks"

    def jobs(self, seed: int, count: int) -> Mapping[str, JobRequest]:
        """Return the one job."""
        steps = -(-max(LEAST_STEPS, STEPS_PER_FAULT * count) // EVERY) * EVERY
        options = {
            "--steps": steps,
            "--every": EVERY,
            "--samples": SAMPLES,
            "--seed": seed % 2**32,
            "--trial": "{trial}",
        }
        words = [str(word) for option in options.items() for word in option]
        request = JobRequest(
            name="many-tasks",
            command=("python3", SCRIPT.name, *words),
            files={SCRIPT.name: SCRIPT.read_bytes()},
            required_outputs=("metrics.json",),
            lease_s=LEASE_S,
            max_task_attempts=ATTEMPTS,
            keep_checkpoints=steps // EVERY,
            task_params=tuple({"trial": trial} for trial in range(TASKS)),
        )
        return {"storm": request}


WORKLOAD = ManyTasks()
