"""What triggers look for besides jobs and events: lines of logs and files of checkpoint trees."""

from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, slots=True)
class Written:
    """A line that a container wrote; `at_ns` is CLOCK_MONOTONIC, by the engine's own stamp."""

    at_ns: int
    text: str


class Signs(Protocol):
    """Looks that are taken several times a second, so each must be cheap."""

    def written(self, service: str, since_ns: int) -> tuple[Written, ...]:
        """Return what a service's container wrote from `since_ns` on, in order.

        Raise NoTarget where the service has no container.
        """
        ...

    def files(self, job_id: str, task_id: str, pattern: str) -> tuple[str, ...]:
        """Return the paths below a task's checkpoint tree that match a glob, a few at most."""
        ...

    def parts_written(self, job_id: str, task_id: str, lease_id: str) -> bool:
        """Whether an attempt saves a step that has parts and no manifest yet."""
        ...
