"""The worker's session: a stream held open from a thread of its own, so that its end is a signal.

It has its own connection. No task can stop it, for tasks are processes of their own.
"""

import random
from collections.abc import Callable
from contextlib import AbstractContextManager
from threading import Condition, Thread
from time import monotonic
from typing import Self

from flashruntime.errors import CoordinatorUnreachable, NotFound, Superseded
from flashruntime.protocol.nodes import NodeDuty, SessionEnding, SessionNews
from flashruntime.session_stream import SessionLines
from flashruntime.worker import events
from flashruntime.worker.control import delays_s
from flashruntime.worker.ports import Coordinator

SILENCE_S = 15.0
AT_ONCE_S = 0.01
FIRST_DELAY_S, MAX_DELAY_S = 0.05, 2.0
QUICK_AGAIN_S = 5.0
LEAVE_S = 0.2


class Session:
    """Holds the stream of the newest registration open until it is closed.

    A stream that ends, or is silent for `silence_s`, is opened again: at once, then with growing
    pauses. `lost` is called with a session that the coordinator does not know any more.
    """

    def __init__(
        self,
        node_id: str,
        connect: Callable[[float], AbstractContextManager[Coordinator]],
        lost: Callable[[str], None],
        on_duty: Callable[[NodeDuty], None] = lambda _: None,
        silence_s: float = SILENCE_S,
    ) -> None:
        self._node_id = node_id
        self._connect = connect
        self._lost = lost
        self._on_duty = on_duty
        self._silence_s = silence_s
        self._changed = Condition()
        self._session_id: str | None = None
        self._is_closed = False
        self._lines: SessionLines | None = None
        self._thread = Thread(target=self._run, name="session", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        """End the stream: what the worker has not handed back is lost now, not with its lease."""
        with self._changed:
            self._is_closed = True
        self._interrupt()
        self._thread.join(LEAVE_S)

    @property
    def is_alive(self) -> bool:
        """Whether its thread runs."""
        return self._thread.is_alive()

    def follow(self, session_id: str) -> None:
        """Hold the stream of this session open from now on."""
        with self._changed:
            if session_id == self._session_id:
                return
            self._session_id = session_id
        self._interrupt()

    def _interrupt(self) -> None:
        with self._changed:
            if self._lines is not None:
                self._lines.interrupt()
            self._changed.notify_all()

    def _run(self) -> None:
        while (session_id := self._next()) is not None:
            with self._connect(self._silence_s) as client:
                self._keep(client, session_id)

    def _next(self) -> str | None:
        with self._changed:
            self._changed.wait_for(lambda: self._is_closed or self._session_id is not None)
            return None if self._is_closed else self._session_id

    def _is_current(self, session_id: str) -> bool:
        return not self._is_closed and self._session_id == session_id

    def _keep(self, client: Coordinator, session_id: str) -> None:
        """Hold one session open for as long as it is the one to follow."""
        delays, wait_s, quick_s = delays_s(FIRST_DELAY_S, MAX_DELAY_S), 0.0, -QUICK_AGAIN_S
        while self._is_current(session_id):
            with self._changed:
                self._changed.wait_for(lambda: not self._is_current(session_id), wait_s)
            if self._is_current(session_id) and self._hold(client, session_id):
                self._forget(session_id)
            wait_s, now_s = next(delays), monotonic()
            if now_s - quick_s >= QUICK_AGAIN_S:
                delays, quick_s = delays_s(FIRST_DELAY_S, MAX_DELAY_S), now_s
                wait_s = random.uniform(0, AT_ONCE_S)

    def _forget(self, session_id: str) -> None:
        with self._changed:
            if self._session_id == session_id:
                self._session_id = None
        self._lost(session_id)

    def _hold(self, client: Coordinator, session_id: str) -> bool:
        """Hold the stream open until it ends; return whether the session has ended with it."""
        try:
            with client.session(self._node_id, session_id) as lines:
                return self._read(lines, session_id)
        except (NotFound, Superseded) as error:
            events.warning("session_lost", session_id=session_id, error=str(error))
            return True
        except CoordinatorUnreachable as error:
            self._warn(session_id, error)
        except Exception as error:  # noqa: BLE001 (thread boundary: the session must be kept)
            self._warn(session_id, error)
        finally:
            with self._changed:
                self._lines = None
        return False

    def _read(self, lines: SessionLines, session_id: str) -> bool:
        with self._changed:
            self._lines = lines
            if not self._is_current(session_id):
                return False
        reason = SessionEnding.CLOSED
        for line in lines:
            if line.news is SessionNews.OPEN:
                events.info("session_open", session_id=session_id)
            if line.duty is not None:
                self._on_duty(line.duty)
            reason = line.reason or reason
        if self._is_current(session_id):
            events.warning("session_ended", session_id=session_id, reason=reason.value)
        return reason is SessionEnding.SUPERSEDED

    def _warn(self, session_id: str, error: Exception) -> None:
        if self._is_current(session_id):
            events.warning("session_broken", session_id=session_id, error=str(error))
