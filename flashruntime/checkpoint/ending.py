"""The end of a process whose last save runs behind it: waited for, and never silently lost."""

import atexit
import contextlib
import os
import sys
from collections.abc import Callable
from typing import Any

from flashruntime.errors import CheckpointError

LAST_OF_ALL = -1000


class _FailsAtFlush:
    """The standard output, whose last flush fails: so an interpreter ends with 120."""

    def __init__(self, stream: Any) -> None:
        self._stream = stream

    def flush(self) -> None:
        """Flush; fail where it is the interpreter that asks, after all that runs at its end."""
        with contextlib.suppress(OSError, ValueError):
            self._stream.flush()
        if sys.is_finalizing():
            raise CheckpointError("the last save failed, so this process ends with a nonzero code")

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


def at_end(finish: Callable[[], object]) -> None:
    """Call `finish` once, when this process ends by itself; a forked child does not.

    What it raises goes to sys.excepthook and makes the exit code nonzero: 120, which Python uses
    for an error while it ends; 1 in a child of multiprocessing.
    """
    owner_pid = os.getpid()
    multiprocessing = sys.modules.get("multiprocessing.util")
    process = sys.modules.get("multiprocessing.process")
    is_child = process is not None and process.parent_process() is not None

    def end() -> None:
        if os.getpid() != owner_pid:
            return
        try:
            finish()
        except BaseException as error:  # noqa: BLE001 (the end of the process)
            sys.excepthook(type(error), error, error.__traceback__)
            if is_child:
                _flush_and_leave()
            sys.stdout = _FailsAtFlush(sys.stdout)

    if is_child and multiprocessing is not None:
        multiprocessing.Finalize(None, end, exitpriority=LAST_OF_ALL)
    else:
        atexit.register(end)


def _flush_and_leave() -> None:
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError):
            stream.flush()
    os._exit(1)
