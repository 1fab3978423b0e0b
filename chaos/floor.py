"""The keep-alive floor of a run: a fault that would take the last worker is refused."""

import threading
from collections.abc import Callable
from dataclasses import dataclass, field

TAKES = ("start_container", "reconnect")
"""The undos that bring a worker back: whoever promises one is about to take it away."""


@dataclass(slots=True)
class Floor:
    """Which workers faults have taken, or are about to; `least` of `workers` stay.

    Without `workers` there is nothing to keep. Threads may share it.
    """

    workers: int = 0
    least: int = 0
    _taken: dict[str, str] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def take(self, fault_id: str, service: str, is_up: Callable[[str], bool]) -> str | None:
        """Reserve a worker for a fault; return why it may not have it, None where it may.

        What is no worker is never refused. `is_up` is asked of the others.
        """
        everybody = [f"worker-{number}" for number in range(1, self.workers + 1)]
        if service not in everybody:
            return None
        with self._lock:
            by_others = {name for name, by in self._taken.items() if by != fault_id}
            left = [name for name in everybody if name != service and name not in by_others]
            up = [name for name in left if is_up(name)]
            if len(up) < self.least:
                return (
                    f"{service} is not taken: {len(up)} of {self.workers} workers would be left, "
                    f"and the floor is {self.least}"
                )
            self._taken[service] = fault_id
            return None

    def release(self, fault_id: str) -> None:
        """Forget what a fault had reserved: from now on it counts whether the worker is up."""
        with self._lock:
            for service in [name for name, by in self._taken.items() if by == fault_id]:
                del self._taken[service]
