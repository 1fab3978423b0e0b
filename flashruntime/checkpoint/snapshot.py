"""Saving behind the training: one save at a time, in a thread that lives as long as the save.

A thread of its own for each save means that none is left over when the job forks. The interpreter
does not wait for it: whoever owns the saver waits at the end of the process.
"""

import _thread
import contextlib
import os
import sys
import threading
import time
from collections.abc import Callable

NICE = 5


class Saver:
    """Runs a save behind its caller; what went wrong in it is raised once, at the next call."""

    def __init__(self) -> None:
        self._done = threading.Event()
        self._done.set()
        self._failure: BaseException | None = None
        self._owner_pid = os.getpid()

    @property
    def busy(self) -> bool:
        """Whether a save is in flight in this process."""
        return not self._done.is_set() and os.getpid() == self._owner_pid

    def wait(self) -> float:
        """Wait for the save in flight and raise its error; return how many seconds that took.

        In a forked child there is nothing to wait for: the save belongs to its parent.
        """
        if os.getpid() != self._owner_pid:
            return 0.0
        began_s = time.monotonic()
        self._done.wait()
        self.surface()
        return time.monotonic() - began_s

    def surface(self) -> None:
        """Raise what went wrong in a save that is over, without waiting for one in flight."""
        if self._done.is_set() and os.getpid() == self._owner_pid:
            failure, self._failure = self._failure, None
            if failure is not None:
                raise failure

    def start(self, save: Callable[[], object], *, nice: int = NICE) -> None:
        """Run `save` in the background, once the one before it is over.

        `nice` is what it and the threads that it starts leave to the training of the processors.
        threading.Thread.start would wait until the thread runs, and then 5 ms (the interval at
        which threads switch) for the interpreter's lock.
        """
        self.wait()
        self._own()
        unclaimed = threading.Lock()
        try:
            self._done.clear()
            if not threading.main_thread().is_alive():
                raise RuntimeError("nobody waits for a thread any more")
            _thread.start_new_thread(self._run, (save, nice, unclaimed))
        except RuntimeError:
            # No thread can be had (the interpreter is ending, or a limit on threads is reached).
            self._run(save, 0, unclaimed)
            self.wait()
        except BaseException:
            # A signal's handler has raised, and nobody knows whether there will be a thread.
            if unclaimed.acquire(blocking=False):
                self._done.set()
            raise

    def _own(self) -> None:
        """In a fork, have nothing of the parent's save: its failure, or a lock that it held."""
        if os.getpid() != self._owner_pid:
            self._owner_pid, self._failure, self._done = os.getpid(), None, threading.Event()

    def _run(self, save: Callable[[], object], nice: int, unclaimed: threading.Lock) -> None:
        if not unclaimed.acquire(blocking=False):
            return
        try:
            _step_back(nice)
            save()
        except BaseException as error:  # noqa: BLE001 (raised again by `wait`, in the caller)
            self._failure = error
        finally:
            self._done.set()


def _step_back(nice: int) -> None:
    """Lower the priority of this thread alone, which Linux can do."""
    if nice and sys.platform == "linux":
        thread = threading.get_native_id()
        with contextlib.suppress(OSError):
            os.setpriority(os.PRIO_PROCESS, thread, os.getpriority(os.PRIO_PROCESS, thread) + nice)
