"""Ships what a job prints to the coordinator, by offset, while it runs and once more at its end."""

from pathlib import Path
from threading import Event, Lock, Thread
from typing import Self

from flashruntime.errors import CoordinatorUnreachable, FlashError, NotFound, Superseded
from flashruntime.launch.files import open_regular
from flashruntime.worker import events
from flashruntime.worker.control import AttemptControl, delays_s
from flashruntime.worker.ports import Coordinator

INTERVAL_S = 0.5
CHUNK_BYTES = 256 * 1024
MAX_SHIPPED_BYTES = 80 * 1024 * 1024


class OutputShipper:
    """Sends a growing file; what the coordinator already has is not sent again.

    Output is no reason to fail an attempt: if the coordinator refuses it, shipping ends.
    """

    def __init__(
        self, lease_id: str, client: Coordinator, control: AttemptControl, path: Path
    ) -> None:
        self._lease_id = lease_id
        self._client = client
        self._control = control
        self._path = path
        self._offset = 0
        self._refused = False
        self._sending = Lock()
        self._closed = Event()
        self._thread = Thread(target=self._run, name="output", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._closed.set()

    def drain(self, timeout_s: float) -> None:
        """Send the rest; raise Superseded or NoticeOver where nothing more can be done."""
        delays = delays_s()
        waited_s = 0.0
        while waited_s <= timeout_s:
            self._control.check()
            try:
                if not self._send_next():
                    return
            except CoordinatorUnreachable:
                delay_s = next(delays)
                waited_s += delay_s
                self._control.pause(delay_s)
        events.warning("output_incomplete", lease_id=self._lease_id, sent_bytes=self._offset)

    def _run(self) -> None:
        delays, wait_s = delays_s(), INTERVAL_S
        while not self._closed.wait(wait_s):
            try:
                while not self._closed.is_set() and self._send_next():
                    pass
                delays, wait_s = delays_s(), INTERVAL_S
            except CoordinatorUnreachable:
                wait_s = INTERVAL_S + next(delays)
            except Exception as error:  # noqa: BLE001 (thread boundary: the attempt goes on)
                events.warning("output_failed", lease_id=self._lease_id, error=str(error))

    def _send_next(self) -> bool:
        """Send one chunk; return whether there may be more."""
        with self._sending:
            data = self._read()
            if not data or self._refused:
                return False
            try:
                self._offset = self._client.append_log(self._lease_id, self._offset, data)
            except (Superseded, NotFound) as error:
                self._control.lose(f"output refused: {error}")
                return False
            except CoordinatorUnreachable:
                raise
            except FlashError as error:
                self._refused = True
                events.warning("output_refused", lease_id=self._lease_id, error=str(error))
            return True

    def _read(self) -> bytes:
        if self._offset >= MAX_SHIPPED_BYTES:
            return b""
        try:
            with open_regular(self._path) as file:
                file.seek(self._offset)
                return file.read(CHUNK_BYTES)
        except OSError:
            return b""
