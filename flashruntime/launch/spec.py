"""What is launched, and the port through which it is launched."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from flashruntime.protocol.failures import Evidence


@dataclass(frozen=True, slots=True)
class LaunchSpec:
    """One process to start: its whole environment, and the file that takes its output.

    `error_file` is where the process's own excepthook reports an uncaught exception.
    """

    argv: tuple[str, ...]
    cwd: Path
    env: Mapping[str, str]
    log_path: Path
    error_file: Path | None = None


class Process(Protocol):
    """A launched process and all that it starts."""

    def stop(self, grace_s: float) -> None:
        """Ask it to end; after `grace_s` the whole tree is killed. The nearest deadline counts."""
        ...

    def dump_stacks(self) -> int:
        """Ask each Python of the tree that listens to print its stacks; return how many were."""
        ...

    def wait(self, timeout_s: float | None = None) -> Evidence | None:
        """Return how it ended, or None if it has not within `timeout_s`."""
        ...


class Launcher(Protocol):
    """Starts processes."""

    def launch(self, spec: LaunchSpec, on_end: Callable[[], None]) -> Process:
        """Start `spec`; `on_end` is called once, from another thread, when it has ended.

        A command that cannot be started ends at once with evidence of a spawn error.
        """
        ...
