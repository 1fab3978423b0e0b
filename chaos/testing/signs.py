"""The twin of what triggers look for: whatever a test puts there."""

from dataclasses import dataclass, field
from fnmatch import fnmatch

from chaos.ports.signs import Written


@dataclass
class FakeSigns:
    """Lines by service, files of every task, leases whose saves are open; `looks` counts them."""

    lines: dict[str, list[Written]] = field(default_factory=dict)
    paths: list[str] = field(default_factory=list)
    open_saves: set[str] = field(default_factory=set)
    looks: int = 0

    def written(self, service: str, since_ns: int) -> tuple[Written, ...]:
        """Return the lines since then."""
        self.looks += 1
        return tuple(line for line in self.lines.get(service, ()) if line.at_ns >= since_ns)

    def files(self, job_id: str, task_id: str, pattern: str) -> tuple[str, ...]:
        """Return the paths that match."""
        del job_id, task_id
        self.looks += 1
        return tuple(path for path in self.paths if fnmatch(path, pattern))

    def parts_written(self, job_id: str, task_id: str, lease_id: str) -> bool:
        """Return what the test says."""
        del job_id, task_id
        self.looks += 1
        return lease_id in self.open_saves
