"""A fan-out of tasks of a second or two: workers claim all the time."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from chaos.model import JobRequest

SCRIPT = Path(__file__).resolve().parents[1] / "payloads" / "trial.py"
TASKS_PER_FAULT = 6
STEPS = 20
EVERY = 10
LEASE_S = 3.0


@dataclass(frozen=True, slots=True)
class ShortTasks:
    """TASKS_PER_FAULT tasks for each of `count` faults."""

    name: str = "short_tasks"

    def jobs(self, seed: int, count: int) -> Mapping[str, JobRequest]:
        """Return the one job."""
        options = {
            "--steps": STEPS,
            "--every": EVERY,
            "--seed": seed % 2**32,
            "--trial": "{trial}",
        }
        words = [str(word) for option in options.items() for word in option]
        tasks = TASKS_PER_FAULT * max(1, count)
        request = JobRequest(
            name="short-tasks",
            command=("python3", SCRIPT.name, *words),
            files={SCRIPT.name: SCRIPT.read_bytes()},
            required_outputs=("metrics.json",),
            lease_s=LEASE_S,
            max_task_attempts=2 * tasks,
            task_params=tuple({"trial": trial} for trial in range(tasks)),
        )
        return {"storm": request}


WORKLOAD = ShortTasks()
