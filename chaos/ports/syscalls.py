"""System calls of one save: recorded, and disturbed at exactly one of them."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from chaos.syscalls_trace import Syscall

KILL = "KILL"
HOWS = (KILL, "EIO", "ENOSPC")
"""What can be done at a call: kill the process, or let the call fail with an errno."""


@dataclass(frozen=True, slots=True)
class Saved:
    """A save as it was traced below `root`.

    `exit_code` is None where it still ran at its end; `items` is what a restart then found of each
    item (whole, absent or torn), `usable` whether the next save worked.
    """

    root: str
    calls: tuple[Syscall, ...]
    answered: tuple[str, ...]
    exit_code: int | None
    usable: bool
    items: Mapping[str, str]
    detail: str


class Syscalls(Protocol):
    """Saves with the real runtime, each on a fresh volume; `what` names the save.

    Everything it makes carries the label of the run and is gone with `stack_down`.
    """

    def save(self, what: str, at: Syscall | None = None, how: str = KILL) -> Saved:
        """Save, disturbed at the call that `at` names (by name and count) where it is given.

        `how` is KILL, or the errno that the call then gives. CannotRun where nothing can be traced.
        """
        ...
