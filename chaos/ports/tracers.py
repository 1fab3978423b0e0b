"""System calls of processes that already run, disturbed while they go on."""

from dataclasses import dataclass
from typing import Protocol

from chaos.model import Container
from chaos.syscalls_trace import Syscall


@dataclass(frozen=True, slots=True)
class Injection:
    """What happens at which calls, in the words of strace's `inject=`.

    `calls` are names ("fsync,fdatasync"); with `path` only those that name exactly this path count.
    `when` counts the calls of each thread: "3" is the third, "3+" it and all after it.
    """

    calls: str
    what: str
    when: str = "1+"
    path: str | None = None


class Tracers(Protocol):
    """Tracers of one run's containers; `name` tells them apart."""

    def attach(
        self, container: Container, name: str, injection: Injection, *, inner: bool = False
    ) -> int:
        """Disturb a container's first process, or with `inner` those that it has started.

        Return the instant (CLOCK_MONOTONIC, ns) from which on it holds. NoTarget where there is no
        such process, CannotRun where nothing can be traced.
        """
        ...

    def calls(self, name: str) -> tuple[Syscall, ...]:
        """Return the calls that were traced so far; none where nobody traces any more."""
        ...

    def detach(self, name: str) -> None:
        """Let the processes go on undisturbed; a tracer that is gone is fine."""
        ...
