"""The attempts that a worker has now, each in a thread of its own."""

from dataclasses import replace
from threading import Thread

from flashruntime.errors import FlashError
from flashruntime.launch.machine import VISIBLE
from flashruntime.protocol.failures import EndedBy, Evidence
from flashruntime.protocol.placement import Resources
from flashruntime.protocol.tasks import Lease
from flashruntime.worker import events
from flashruntime.worker.capacity import Capacity
from flashruntime.worker.control import AttemptControl, StopRequest
from flashruntime.worker.execution import AttemptSettings, Execution, report_failure
from flashruntime.worker.ports import Tools
from flashruntime.worker.workspace import WorkerHome


class Attempts:
    """Runs what leases allow; nothing that befalls one attempt touches another.

    All of them share a request to hand back, which `hand_back` makes and `go_on` replaces.
    """

    def __init__(
        self,
        tools: Tools,
        settings: AttemptSettings,
        home: WorkerHome,
        stop: StopRequest,
        capacity: Capacity,
    ) -> None:
        self._tools = tools
        self._settings = settings
        self._home = home
        self._stop = stop
        self._capacity = capacity
        self._leaving = StopRequest(stop.notice_s, above=stop)

    @property
    def has_room(self) -> bool:
        """Whether another attempt can be started; to be asked for under `stop.changed`."""
        return self._capacity.has_room

    def free(self) -> Resources:
        """Return what no attempt has asked for."""
        with self._stop.changed:
            return self._capacity.free()

    @property
    def nothing_taken(self) -> bool:
        """Whether everything but slots is free."""
        with self._stop.changed:
            return self._capacity.nothing_taken

    def start(self, lease: Lease, *, keep: bool) -> None:
        """Run an attempt in the background; with `keep` its directory stays."""
        with self._stop.changed:
            devices = self._capacity.take(lease.lease_id, lease.payload.resources)
        settings = self._settings
        if devices:
            environ = {**settings.environ, VISIBLE: ",".join(devices)}
            settings = replace(settings, environ=environ)
        name = f"attempt-{lease.task_id}"
        run = (lease, settings, self._leaving, keep)
        Thread(target=self._run, args=run, name=name, daemon=True).start()

    def hand_back(self) -> None:
        """Let the attempts of now checkpoint, end and hand back their tasks."""
        self._leaving.request()

    def go_on(self) -> None:
        """Let attempts run that are started from now on."""
        if self._leaving.requested:
            self._leaving = StopRequest(self._stop.notice_s, above=self._stop)

    def await_none(self) -> None:
        """Wait until no attempt is left, or the time to leave is over."""
        with self._stop.changed:
            self._stop.changed.wait_for(
                lambda: self._capacity.is_unused, min(self._stop.remaining_s(), 10**6)
            )

    def give_up(self, lease: Lease, ended_by: EndedBy, why: str) -> None:
        """Report an attempt that will not run."""
        evidence = Evidence(ended_by=ended_by, message=why)
        try:
            report_failure(lease, evidence, self._tools, AttemptControl(self._stop))
        except FlashError as error:
            events.warning("give_up_unanswered", lease_id=lease.lease_id, error=str(error))

    def _run(
        self, lease: Lease, settings: AttemptSettings, leaving: StopRequest, keep: bool
    ) -> None:
        workspace = self._home.workspace(lease.lease_id)
        try:
            Execution(lease, self._tools, settings, workspace, leaving).run()
        except Exception as error:  # noqa: BLE001 (attempt boundary: the worker goes on)
            events.LOGGER.exception("attempt_crashed", extra={"lease_id": lease.lease_id})
            self.give_up(lease, EndedBy.WORKER_ERROR, f"error of the worker: {error!r}")
        finally:
            if not keep:
                workspace.remove()
            with self._stop.changed:
                self._capacity.give_back(lease.lease_id)
                self._stop.changed.notify_all()
