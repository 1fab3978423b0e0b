"""Stacks of a process that hangs: its own faulthandler prints them, on a signal of ours.

The signal is one that hardly anybody uses, and goes only to processes that have a handler for it.
"""

import os
import signal
from contextlib import suppress
from pathlib import Path

DUMP_SIGNAL = int(getattr(signal, "SIGRTMIN", 34)) + 7
DUMP_VARIABLE = "FLASHML_DUMP_SIGNAL"


class Dump:
    """The signal, sent to each of `pids` that listens; `count` is how many those are."""

    def __init__(self, pids: list[int]) -> None:
        # Some threads block every signal; they say nothing of how far the others are.
        self._deaf = {pid: _blocking(pid) for pid in pids if _has(_status(pid), "SigCgt")}
        self.count = len(self._deaf)
        for pid in self._deaf:
            with suppress(ProcessLookupError, PermissionError):
                os.kill(pid, DUMP_SIGNAL)

    @property
    def goes_on(self) -> bool:
        """Whether any of them has not begun to print yet, or is in the middle of it.

        A handler runs with its own signal blocked.
        """
        return any(
            _has(_status(pid), "ShdPnd") or not _blocking(pid) <= deaf
            for pid, deaf in self._deaf.items()
        )


def _blocking(pid: int) -> set[str]:
    """Return the threads of a process that block the signal."""
    try:
        threads = [path.name for path in Path(f"/proc/{pid}/task").iterdir()]
    except OSError:
        return set()
    return {thread for thread in threads if _has(_status(f"{pid}/task/{thread}"), "SigBlk")}


def _status(name: int | str) -> str:
    try:
        return Path(f"/proc/{name}/status").read_text(encoding="ascii", errors="replace")
    except OSError:
        return ""


def _has(status: str, field: str) -> bool:
    """Return whether the signal is in a set of signals."""
    of_field = (line for line in status.splitlines() if line.startswith(f"{field}:"))
    return bool(int(next(of_field, f"{field}: 0").split()[1], 16) >> (DUMP_SIGNAL - 1) & 1)
