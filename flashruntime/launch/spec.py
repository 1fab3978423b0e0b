"""What is launched, and the port through which it is launched."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from flashruntime.protocol.failures import Evidence


@dataclass(frozen=True, slots=True)
class WarmStart:
    """Leave to fork the process from an interpreter that has imported what it needs.

    `argv` is run; with `ranks`, in so many processes with the environment that torchrun would give
    them. With `wait`, an interpreter is made and waited for; else one that is ready is used, and
    with `prepare` one is made for later launches. With `imports` (`module:name,name` each) it is
    one for every script of that Python and environment, has imported these, and never idles out.
    The variables `late` are those that no import reads: an interpreter is started without them.
    """

    argv: tuple[str, ...]
    ranks: int | None = None
    wait: bool = True
    prepare: bool = False
    imports: tuple[str, ...] = ()
    late: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class LaunchSpec:
    """One process to start: its whole environment, and the file that takes its output.

    `error_file` is where the process's own excepthook reports an uncaught exception. `warm` starts
    the same another way, where that can be done.
    """

    argv: tuple[str, ...]
    cwd: Path
    env: Mapping[str, str]
    log_path: Path
    error_file: Path | None = None
    warm: WarmStart | None = None


class Process(Protocol):
    """A launched process and all that it starts."""

    def stop(self, grace_s: float) -> None:
        """Ask it to end; after `grace_s` the whole tree is killed. The nearest deadline counts."""
        ...

    def dump_stacks(self) -> int:
        """Ask each Python of the tree that listens to print its stacks; return how many were."""
        ...

    @property
    def is_dumping(self) -> bool:
        """Whether stacks that were asked for are not all printed yet."""
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
