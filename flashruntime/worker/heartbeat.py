"""Signs of life of an attempt, from a thread of their own, whatever else the worker does."""

from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from threading import Event, Thread
from time import monotonic
from typing import Self

from flashruntime.errors import CoordinatorUnreachable, NotFound, Superseded
from flashruntime.launch.progress import read_progress
from flashruntime.protocol.tasks import HeartbeatRequest, Lease
from flashruntime.worker import events
from flashruntime.worker.control import AttemptControl, delays_s
from flashruntime.worker.ports import Coordinator

BEATS_PER_LEASE = 3
MAX_INTERVAL_S = 5.0
MIN_CALL_S = 0.5
MAX_CALL_S = 10.0
LOOK_S = 0.1


class Heartbeat:
    """Renews a lease until it is closed; a refusal is the loss of the lease.

    While the coordinator cannot be reached it goes on trying, also beyond the lease. The interval
    has an upper bound, for a beat carries the step, and its refusal a cancellation; the first step
    is told at once, and `imports` are told once.
    """

    def __init__(
        self,
        lease: Lease,
        connect: Callable[[float], AbstractContextManager[Coordinator]],
        control: AttemptControl,
        step_file: Path,
    ) -> None:
        self._lease = lease
        self._connect = connect
        self._control = control
        self._step_file = step_file
        self.imports: list[str] | None = None
        self._closed = Event()
        self._has_stepped = False
        self._thread = Thread(target=self._run, name="heartbeat", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._closed.set()

    def _run(self) -> None:
        interval_s = min(MAX_INTERVAL_S, self._lease.lease_seconds / BEATS_PER_LEASE)
        with self._connect(min(MAX_CALL_S, max(MIN_CALL_S, interval_s))) as client:
            self._beat_until_closed(client, interval_s)

    def _beat_until_closed(self, client: Coordinator, interval_s: float) -> None:
        retries = delays_s(most_s=interval_s)
        wait_s = interval_s
        while not self._ends_within(wait_s):
            try:
                self._beat(client)
                retries, wait_s = delays_s(most_s=interval_s), interval_s
            except (Superseded, NotFound) as error:
                self._control.lose(f"heartbeat refused: {error}")
                return
            except CoordinatorUnreachable as error:
                wait_s = next(retries)
                self._warn("heartbeat_unanswered", error)
            except Exception as error:  # noqa: BLE001 (thread boundary: a lease must not lapse)
                wait_s = interval_s
                self._warn("heartbeat_failed", error)

    def _ends_within(self, wait_s: float) -> bool:
        """Wait until the next beat is due; return whether there is none, for this was closed."""
        due_s = monotonic() + wait_s
        while not self._has_stepped and (left_s := due_s - monotonic()) > 0:
            if self._closed.wait(min(left_s, LOOK_S)):
                return True
            self._has_stepped = read_progress(self._step_file).step is not None
            if self._has_stepped:
                return False
        return self._closed.wait(max(0.0, due_s - monotonic()))

    def _beat(self, client: Coordinator) -> None:
        told, imports = read_progress(self._step_file), self.imports
        beat = HeartbeatRequest(
            step=told.step,
            resumed_from=told.resumed_from,
            checkpoint_step=told.checkpoint_step,
            imports=imports,
        )
        client.heartbeat(self._lease.lease_id, beat)
        if imports is not None:
            self.imports = None

    def _warn(self, event: str, error: Exception) -> None:
        events.warning(event, lease_id=self._lease.lease_id, error=str(error))
