"""Stacks of a process that hangs: its own faulthandler prints them, on a signal of ours.

The signal is one that hardly anybody uses, and goes only to processes that have a handler for it.
"""

import os
import signal
from contextlib import suppress
from pathlib import Path

DUMP_SIGNAL = int(getattr(signal, "SIGRTMIN", 34)) + 7
DUMP_VARIABLE = "FLASHML_DUMP_SIGNAL"


def dump(pids: list[int]) -> int:
    """Send the signal to each of `pids` that listens; return how many those are."""
    listening = [pid for pid in pids if _handles(pid)]
    for pid in listening:
        with suppress(ProcessLookupError, PermissionError):
            os.kill(pid, DUMP_SIGNAL)
    return len(listening)


def _handles(pid: int) -> bool:
    try:
        status = Path(f"/proc/{pid}/status").read_text(encoding="ascii", errors="replace")
    except OSError:
        return False
    caught = next((line for line in status.splitlines() if line.startswith("SigCgt:")), "SigCgt: 0")
    return bool(int(caught.split()[1], 16) >> (DUMP_SIGNAL - 1) & 1)
