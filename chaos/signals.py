"""Ctrl-C, SIGTERM and a closed terminal while a run is under way: stop once, heal undisturbed."""

import signal
import threading
from collections.abc import Callable
from types import FrameType, TracebackType
from typing import Any

HANDLED = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Interrupted(KeyboardInterrupt):
    """The user or the system asked the run to stop."""


class Signals:
    """While entered, the first signal raises Interrupted, unless `hold` was called before.

    Every later signal, and every one after `hold`, only says that healing takes a moment. Outside
    of the main thread signals stay as they are.
    """

    def __init__(self, say: Callable[[str], None]) -> None:
        self._say = say
        self._held = False
        self._old: dict[signal.Signals, Any] = {}
        self.received = False

    def hold(self) -> None:
        """Raise no more: what follows must not be interrupted."""
        self._held = True

    def __enter__(self) -> "Signals":
        if threading.current_thread() is threading.main_thread():
            wanted = [number for number in HANDLED if not _nohup(number)]
            self._old = {number: signal.signal(number, self._on_signal) for number in wanted}
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for number, handler in self._old.items():
            signal.signal(number, handler)

    def _on_signal(self, number: int, _frame: FrameType | None) -> None:
        raised = self.received or self._held
        self.received = True
        if raised:
            self._say("stopping already; putting everything right takes a moment")
            return
        raise Interrupted(signal.Signals(number).name)


def _nohup(number: signal.Signals) -> bool:
    return number is signal.SIGHUP and signal.getsignal(number) is signal.SIG_IGN
