"""Calls of the worker as a whole: repeated until answered, and never in the way of a stop."""

import queue
from collections.abc import Callable
from threading import Thread

from flashruntime.worker import events
from flashruntime.worker.control import Answer, NoticeOver, StopRequest, until_answered

LEAVE_IDLE_S = 0.5
REFUSED_PAUSE_S = 2.0


class Asking:
    """Asks a coordinator until the worker is to leave."""

    def __init__(self, url: str, stop: StopRequest) -> None:
        self._url = url
        self._stop = stop

    def ask(self, call: Callable[[], Answer]) -> Answer | Exception | None:
        """Call from a thread of its own, so that a stop need not wait for the answer.

        None if the worker is to leave and there is no answer.
        """
        answer: queue.SimpleQueue[Answer | Exception] = queue.SimpleQueue()

        def ask() -> None:
            found: Answer | Exception
            try:
                found = until_answered(call, self._pause_unreachable, self._stop.pause)
            except Exception as error:  # noqa: BLE001 (thread boundary: the main loop decides)
                found = error
            with self._stop.changed:
                answer.put(found)
                self._stop.changed.notify_all()

        asking = Thread(target=ask, name="ask", daemon=True)
        asking.start()
        with self._stop.changed:
            self._stop.changed.wait_for(lambda: not answer.empty() or self._stop.requested)
        if self._stop.requested:
            asking.join(min(LEAVE_IDLE_S, self._stop.remaining_s()))
        try:
            return answer.get_nowait()
        except queue.Empty:
            return None

    def refused(self, event: str, error: Exception) -> None:
        """Tell of a refusal and wait a while; raises NoticeOver if the worker is to leave."""
        if isinstance(error, NoticeOver):
            raise error
        events.warning(event, error=str(error))
        self._stop.pause(REFUSED_PAUSE_S)

    def _pause_unreachable(self, delay_s: float) -> None:
        events.warning("coordinator_unreachable", coordinator_url=self._url, retry_in_s=delay_s)
        self._stop.pause(delay_s)
