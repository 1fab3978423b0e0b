"""The worker's main loop: claim a task, run it, report it, until asked to leave."""

import queue
import signal
import socket
from collections.abc import Callable, Mapping
from threading import Event, Thread
from uuid import uuid4

from flashruntime import __version__
from flashruntime.config import WorkerSettings
from flashruntime.errors import Conflict, CoordinatorUnreachable, FlashError, NotFound, Superseded
from flashruntime.protocol.failures import EndedBy, Evidence
from flashruntime.protocol.nodes import NodeHeartbeat, NodeRegistration
from flashruntime.protocol.tasks import ClaimRequest, Lease
from flashruntime.worker import events
from flashruntime.worker.control import (
    Answer,
    AttemptControl,
    NoticeOver,
    StopRequest,
    until_answered,
)
from flashruntime.worker.execution import AttemptSettings, Execution, report_failure
from flashruntime.worker.ports import Tools
from flashruntime.worker.workspace import WorkerHome, check_writable

CLAIM_WAIT_S = 20.0
LEAVE_IDLE_S = 0.5
NODE_BEAT_S = 5.0
REFUSED_PAUSE_S = 2.0


class Agent:
    """Works for one coordinator, one task at a time."""

    def __init__(
        self,
        settings: WorkerSettings,
        tools: Tools,
        stop: StopRequest,
        environ: Mapping[str, str],
        *,
        keep_attempts: bool = False,
    ) -> None:
        self._settings = settings
        self._tools = tools
        self._stop = stop
        self._attempts = AttemptSettings.of(settings, environ)
        self._keep_attempts = keep_attempts
        self._home = WorkerHome(settings.work_dir, settings.node_id)
        self._session_id: str | None = None

    def run(self) -> None:
        """Work until asked to leave; raises ConfigError if a directory cannot be used."""
        check_writable(self._settings.checkpoint_root, "FLASHML_CHECKPOINT_ROOT")
        self._home.open()
        beats_end = Event()
        events.info("worker_started", node_id=self._settings.node_id, version=__version__)
        try:
            Thread(target=self._beat, args=(beats_end,), name="node", daemon=True).start()
            while not self._stop.requested:
                self._work_once()
        except NoticeOver:
            pass
        finally:
            beats_end.set()
            self._home.close(keep=self._keep_attempts)
        events.info("worker_stopped", node_id=self._settings.node_id)

    def _work_once(self) -> None:
        if self._session_id is None:
            self._register()
        if self._session_id is None:
            return
        lease = self._claim()
        if lease is not None:
            self._execute(lease)

    def _register(self) -> None:
        registration = NodeRegistration(
            node_id=self._settings.node_id,
            hostname=socket.gethostname(),
            capabilities={"workloads": ["command"]},
            environment={"flashruntime": __version__},
        )
        answer = self._asked(lambda: self._tools.client.register(registration))
        if isinstance(answer, Exception):
            self._refused("registration_refused", answer)
        elif answer is not None:
            self._session_id = answer.session_id
            events.info("worker_registered", node_id=answer.node_id, session_id=answer.session_id)

    def _pause_unreachable(self, delay_s: float) -> None:
        url = self._settings.coordinator_url
        events.warning("coordinator_unreachable", coordinator_url=url, retry_in_s=delay_s)
        self._stop.pause(delay_s)

    def _refused(self, event: str, error: Exception) -> None:
        if isinstance(error, NoticeOver):
            raise error
        events.warning(event, error=str(error))
        self._session_id = None
        self._stop.pause(REFUSED_PAUSE_S)

    def _claim(self) -> Lease | None:
        request = ClaimRequest(
            node_id=self._settings.node_id,
            session_id=self._session_id,
            wait_s=CLAIM_WAIT_S,
            claim_id=uuid4().hex,
        )
        found = self._asked(lambda: self._tools.client.claim(request))
        if isinstance(found, Exception):
            self._refused("claim_refused", found)
            return None
        if found is not None and self._stop.requested:
            self._give_up(found, EndedBy.STOPPED, "the worker is leaving")
            return None
        return found

    def _asked(self, call: Callable[[], Answer]) -> Answer | Exception | None:
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

    def _give_up(self, lease: Lease, ended_by: EndedBy, why: str) -> None:
        evidence = Evidence(ended_by=ended_by, message=why)
        try:
            report_failure(lease, evidence, self._tools, AttemptControl(self._stop))
        except FlashError as error:
            events.warning("give_up_unanswered", lease_id=lease.lease_id, error=str(error))

    def _execute(self, lease: Lease) -> None:
        events.info(
            "lease_claimed",
            lease_id=lease.lease_id,
            task_id=lease.task_id,
            attempt=lease.attempt_number,
        )
        workspace = self._home.workspace(lease.lease_id)
        try:
            Execution(lease, self._tools, self._attempts, workspace, self._stop).run()
        except Exception as error:  # noqa: BLE001 (attempt boundary: the worker goes on)
            events.LOGGER.exception("attempt_crashed", extra={"lease_id": lease.lease_id})
            self._give_up(lease, EndedBy.WORKER_ERROR, f"error of the worker: {error!r}")
        if not self._keep_attempts:
            workspace.remove()

    def _beat(self, end: Event) -> None:
        while not end.wait(NODE_BEAT_S):
            session_id = self._session_id
            if session_id is None:
                continue
            try:
                beat = NodeHeartbeat(session_id=session_id)
                self._tools.client.node_heartbeat(self._settings.node_id, beat)
            except (NotFound, Superseded, Conflict) as error:
                events.warning("session_lost", session_id=session_id, error=str(error))
                self._session_id = None
            except CoordinatorUnreachable as error:
                events.warning("node_heartbeat_unanswered", error=str(error))
            except Exception as error:  # noqa: BLE001 (thread boundary: the worker goes on)
                events.warning("node_heartbeat_failed", error=str(error))


def stop_on_signals(stop: StopRequest) -> None:
    """Let SIGTERM and SIGINT ask for a stop; to be called from the main thread.

    A handler must not take a lock that the interrupted code may hold: a thread does.
    """
    received: queue.SimpleQueue[int] = queue.SimpleQueue()

    def obey() -> None:
        number = received.get()
        events.info("stop_requested", signal=signal.Signals(number).name, notice_s=stop.notice_s)
        stop.request()

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda received_number, _: received.put(received_number))
    Thread(target=obey, name="signals", daemon=True).start()
