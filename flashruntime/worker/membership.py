"""The worker's standing with its coordinator: its session, signs of life, and what it is to do."""

import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Event, Thread

from flashruntime import __version__
from flashruntime.config import WorkerSettings
from flashruntime.errors import Conflict, CoordinatorUnreachable, NotFound, Superseded
from flashruntime.protocol.nodes import NodeDuty, NodeHeartbeat, NodeRegistration
from flashruntime.protocol.placement import NodeCapabilities, Resources
from flashruntime.worker import events
from flashruntime.worker.asking import Asking
from flashruntime.worker.control import StopRequest
from flashruntime.worker.ports import Coordinator

NODE_BEAT_S = 5.0


class Membership:
    """One registration for all slots; `on_duty` is called with each new duty, `on_imports` with
    what the scripts of all workers import.

    Whoever hears of a duty first, an answer or a stream, passes it to `obey`; whoever hears that a
    session is over passes it to `lose_session`.
    """

    def __init__(
        self,
        settings: WorkerSettings,
        client: Coordinator,
        stop: StopRequest,
        has: Resources,
        on_duty: Callable[[NodeDuty], None],
    ) -> None:
        self._settings = settings
        self._client = client
        self._stop = stop
        self._has = has
        self._on_duty = on_duty
        self.on_imports: Callable[[list[str]], None] = lambda _: None
        self.session_id: str | None = None
        self._last_session_id: str | None = None
        self.duty = NodeDuty.ACTIVE

    @property
    def takes_tasks(self) -> bool:
        """Whether the coordinator gives this worker tasks."""
        return self.duty is NodeDuty.ACTIVE

    def register(self, asking: Asking) -> None:
        """Open a session; without one if that is refused or the worker is to leave."""
        declared = NodeCapabilities(
            workloads=["command"],
            slots=self._settings.slots,
            labels=dict(self._settings.labels),
            **dict(self._has),
        )
        registration = NodeRegistration(
            node_id=self._settings.node_id,
            hostname=socket.gethostname(),
            capabilities=declared.model_dump(),
            environment={"flashruntime": __version__},
            session_id=self._last_session_id,
        )
        answer = asking.ask(lambda: self._client.register(registration))
        if isinstance(answer, Exception):
            asking.refused("registration_refused", answer)
        elif answer is not None:
            self.session_id = self._last_session_id = answer.session_id
            events.info("worker_registered", node_id=answer.node_id, session_id=answer.session_id)
            self.obey(answer.duty)

    def lose_session(self, session_id: str | None) -> None:
        """Forget a session if it is still the one in use, so that a new one is opened."""
        with self._stop.changed:
            if self.session_id == session_id:
                self.session_id = None
            self._stop.changed.notify_all()

    def obey(self, duty: NodeDuty) -> None:
        """Take up a duty; the same again changes nothing."""
        with self._stop.changed:
            if duty is self.duty:
                return
            self.duty = duty
            self._stop.changed.notify_all()
        events.info("duty_changed", node_id=self._settings.node_id, duty=duty.value)
        self._on_duty(duty)

    @contextmanager
    def beating(self) -> Iterator[None]:
        """Give signs of life meanwhile."""
        end = Event()
        Thread(target=self._beat, args=(end,), name="node", daemon=True).start()
        try:
            yield
        finally:
            end.set()

    def _beat(self, end: Event) -> None:
        while not end.wait(NODE_BEAT_S):
            session_id = self.session_id
            if session_id is None:
                continue
            try:
                beat = NodeHeartbeat(session_id=session_id)
                record = self._client.node_heartbeat(self._settings.node_id, beat)
                self.obey(record.duty)
                self.on_imports(record.imports)
            except (NotFound, Superseded, Conflict) as error:
                events.warning("session_lost", session_id=session_id, error=str(error))
                self.lose_session(session_id)
            except CoordinatorUnreachable as error:
                events.warning("node_heartbeat_unanswered", error=str(error))
            except Exception as error:  # noqa: BLE001 (thread boundary: the worker goes on)
                events.warning("node_heartbeat_failed", error=str(error))
