"""Work on several buffers side by side, in threads that end with the work.

Plain threads: the pools of concurrent.futures refuse work once the interpreter is shutting down,
which is when the last save of a run is written.
"""

import os
import threading
from collections.abc import Callable, Iterable, Iterator
from typing import Generic, TypeVar

CORES = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
HASH_THREADS = min(8, CORES)

Item = TypeVar("Item")
Result = TypeVar("Result")


class SideBySide(Generic[Item, Result]):
    """Applies `work` to each item in helper threads, from construction on."""

    def __init__(
        self, work: Callable[[Item], Result], items: Iterable[Item], threads: int = HASH_THREADS
    ) -> None:
        listed = list(items)
        self._work = work
        self._todo: Iterator[tuple[int, Item]] = iter(enumerate(listed))
        self._lock = threading.Lock()
        self._results: dict[int, Result] = {}
        self._failure: BaseException | None = None
        self._threads = [
            threading.Thread(target=self._run, name="flashruntime-hash", daemon=True)
            for _ in range(min(threads, len(listed)))
        ]
        try:
            for thread in self._threads:
                thread.start()
        except RuntimeError:
            # At the end of an interpreter there are no new threads: `results` does the work.
            self._threads = [thread for thread in self._threads if thread.ident]

    def results(self) -> list[Result]:
        """Wait for all of it; return the results in the order of the items, or raise."""
        if not self._threads:
            self._run()
        for thread in self._threads:
            thread.join()
        if self._failure is not None:
            raise self._failure
        return [self._results[index] for index in sorted(self._results)]

    def stop(self) -> None:
        """Take up no further item, and wait until no thread touches any."""
        with self._lock:
            self._todo = iter(())
        for thread in self._threads:
            thread.join()

    def _run(self) -> None:
        while (taken := self._take()) is not None:
            index, item = taken
            try:
                self._results[index] = self._work(item)
            except BaseException as error:  # noqa: BLE001 (raised again by `results`)
                self._failure = error
                return

    def _take(self) -> tuple[int, Item] | None:
        with self._lock:
            return next(self._todo, None)
