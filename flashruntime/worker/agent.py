"""The worker's main loop: claim tasks for its free slots, until asked to leave."""

import signal
import socket
from collections.abc import Mapping
from threading import Thread
from uuid import uuid4

from flashruntime import __version__
from flashruntime.config import WorkerSettings
from flashruntime.launch.machine import this_machine
from flashruntime.protocol.failures import EndedBy
from flashruntime.protocol.nodes import NodeDuty
from flashruntime.protocol.tasks import ClaimRequest, Lease
from flashruntime.worker import events
from flashruntime.worker.asking import Asking
from flashruntime.worker.attempts import Attempts
from flashruntime.worker.capacity import Capacity
from flashruntime.worker.control import NoticeOver, StopRequest
from flashruntime.worker.execution import AttemptSettings
from flashruntime.worker.membership import Membership
from flashruntime.worker.ports import Tools
from flashruntime.worker.session import Session
from flashruntime.worker.workspace import WorkerHome, check_writable

CLAIM_WAIT_S = 20.0
# What is free is said with the claim; the end of a task that asked for some may change it.
BUSY_WAIT_S = 1.0
STOPPED_BY = (signal.SIGTERM, signal.SIGINT)


class Agent:
    """Works for one coordinator: one registration, one claim at a time, a thread for each task."""

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
        self._keep_attempts = keep_attempts
        self._home = WorkerHome(settings.work_dir, settings.node_id)
        machine = this_machine(environ)
        attempt_settings = AttemptSettings.of(settings, environ)
        self._warmth = attempt_settings.warmth
        capacity = Capacity(settings.slots, machine)
        self._attempts = Attempts(tools, attempt_settings, self._home, stop, capacity)
        self._membership = Membership(
            settings, tools.client, stop, machine.resources, self._on_duty
        )
        if self._warmth is not None:
            self._membership.on_imports = self._warmth.learn
        self._asking = Asking(settings.coordinator_url, stop)
        told = self._membership.lose_session, self._membership.obey
        self._session = Session(settings.node_id, tools.connect, *told)

    def run(self) -> None:
        """Work until asked to leave; raises ConfigError if a directory cannot be used."""
        check_writable(self._settings.checkpoint_root, "FLASHML_CHECKPOINT_ROOT")
        self._home.open()
        events.info("worker_started", node_id=self._settings.node_id, version=__version__)
        if self._warmth is not None:
            self._warmth.prepare()
        try:
            with self._membership.beating(), self._session:
                self._work()
        finally:
            self._home.close(keep=self._keep_attempts)
        events.info("worker_stopped", node_id=self._settings.node_id)

    def _work(self) -> None:
        try:
            while not self._stop.requested:
                self._work_once()
        except NoticeOver:
            pass
        finally:
            self._stop.request()
            self._attempts.await_none()

    def _work_once(self) -> None:
        if self._membership.session_id is None:
            self._membership.register(self._asking)
            if self._membership.session_id is not None:
                self._session.follow(self._membership.session_id)
        with self._stop.changed:
            self._stop.changed.wait_for(
                lambda: self._stop.requested or self._membership.session_id is None or self._can_run
            )
        if self._stop.requested or self._membership.session_id is None:
            return
        lease = self._claim()
        if lease is not None:
            events.info(
                "lease_claimed",
                lease_id=lease.lease_id,
                task_id=lease.task_id,
                attempt=lease.attempt_number,
            )
            self._attempts.start(lease, keep=self._keep_attempts)

    @property
    def _can_run(self) -> bool:
        return self._attempts.has_room and self._membership.takes_tasks

    def _on_duty(self, duty: NodeDuty) -> None:
        if duty in {NodeDuty.DRAINING, NodeDuty.DRAINED}:
            self._attempts.hand_back()
        elif duty is NodeDuty.ACTIVE:
            self._attempts.go_on()

    def _claim(self) -> Lease | None:
        request = ClaimRequest(
            node_id=self._settings.node_id,
            session_id=self._membership.session_id,
            wait_s=CLAIM_WAIT_S if self._attempts.nothing_taken else BUSY_WAIT_S,
            claim_id=uuid4().hex,
            free=self._attempts.free(),
        )
        found = self._asking.ask(lambda: self._tools.client.claim(request))
        if isinstance(found, Exception):
            self._membership.lose_session(request.session_id)
            self._asking.refused("claim_refused", found)
            return None
        if found is not None and self._stop.requested:
            self._attempts.give_up(found, EndedBy.STOPPED, "the worker is leaving")
            return None
        return found


def stop_on_signals(stop: StopRequest) -> None:
    """Let SIGTERM and SIGINT ask for a stop; to be called from the main thread.

    Python runs a handler in the main thread, between two of its instructions: a main thread that
    begins to wait just as a signal arrives would not run it before it wakes. The wake-up socket is
    written at once, whatever the main thread does (Python's documentation of `signal`).
    """
    arrived, notify = socket.socketpair()
    notify.setblocking(False)

    def obey() -> None:
        while (number := arrived.recv(1)[0]) not in STOPPED_BY:
            pass
        events.info("stop_requested", signal=signal.Signals(number).name, notice_s=stop.notice_s)
        stop.request()

    for number in STOPPED_BY:
        signal.signal(number, lambda *_: None)
    signal.set_wakeup_fd(notify.detach(), warn_on_full_buffer=False)
    Thread(target=obey, name="signals", daemon=True).start()
