"""Forks a keeper for each socket that it is sent; a script of its own, standard library only.

Run as a script, its keepers execute commands. Inside of an interpreter that has imported modules
for it (`warm_main`), they run what they keep in a fork of that.
"""

import os
import sys
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    import signal
    from _socket import socket
    from typing import Any

    from flashruntime.launch import keeper, processes
else:
    import _signal as signal
    from _socket import socket

    sys.path.insert(0, os.path.dirname(__file__))
    import keeper
    import processes

    del sys.path[0]

FD_BYTES = 4
MOST_HANDLES = 2


class Server:
    """A subreaper too: it ends what a killed keeper leaves behind."""

    def __init__(
        self, control: int, *, in_place: bool = False, idle_s: float | None = None
    ) -> None:
        self._control: socket | None = socket(fileno=control)
        self._in_place = in_place
        self._idle_s = idle_s
        self._connections: dict[int, int] = {}
        self._ended: list[tuple[int, int]] = []
        os.set_inheritable(control, False)
        signal.pthread_sigmask(signal.SIG_SETMASK, ())
        for number in keeper.IGNORED:
            signal.signal(number, signal.SIG_IGN)
        processes.become_subreaper()
        self._wakeup, self._notify = processes.watch_children()

    def serve(self) -> "dict[str, Any]":
        """Serve until the launcher is gone or `idle_s` have passed without work, and exit.

        Returns, with a request, only in a process that is to be run in place.
        """
        while self._control is not None or self._connections:
            control = self._control
            watched = () if control is None else (control.fileno(),)
            ready = processes.await_change(self._wakeup, watched, self._idle_s)
            self._reap()
            if control is not None and control.fileno() in ready:
                request = self._accept(control)
                if request is not None:
                    return request
            if not ready and control is not None and not self._connections:
                processes.say(control.fileno(), {"ended": "idle"})
                break
        os._exit(0)

    def _accept(self, control: socket) -> "dict[str, Any] | None":
        """Fork the next keeper; returns a request in a process that is to be run in place."""
        asked, handles = _receive_handles(control)
        if not asked:
            self._control = None
            control.close()
        if not handles:
            return None
        pid = os.fork()
        if pid == 0:
            try:
                return self._keep(control, handles)
            except BaseException:  # noqa: BLE001 (process boundary: a keeper never serves)
                sys.excepthook(*sys.exc_info())
                os._exit(1)
        self._connections[pid] = handles[0]
        for handle in handles[1:]:
            os.close(handle)
        return None

    def _keep(self, control: socket, handles: list[int]) -> "dict[str, Any] | None":
        control.close()
        processes.leave((self._wakeup, self._notify, *self._connections.values()))
        return keeper.keep(handles[0], handles[1:], self._idle_s, in_place=self._in_place)

    def _reap(self) -> None:
        self._collect()
        while self._ended:
            pid, status = self._ended.pop(0)
            connection = self._connections.pop(pid, None)
            if connection is None:
                continue
            if status:
                self._end_strays()
            processes.say(connection, {"keeper_status": status})
            os.close(connection)

    def _collect(self) -> None:
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            self._ended.append((pid, status))

    def _end_strays(self) -> None:
        """Kill what a killed keeper has left to this process."""
        give_up_at = time.monotonic() + keeper.KILL_WAIT_S
        while time.monotonic() < give_up_at:
            strays = processes.descendants(os.getpid(), self._connections)
            if not strays:
                return
            processes.signal_each(strays, signal.SIGKILL)
            processes.await_change(self._wakeup, (), keeper.RESCAN_S)
            self._collect()


def _receive_handles(control: socket) -> tuple[bool, list[int]]:
    """Return whether something was asked, and the file descriptors that came with that.

    None of them comes where this process may open no more: whoever asked sees its own closed.
    """
    import _socket  # noqa: PLC0415 (loaded already)

    space = _socket.CMSG_SPACE(FD_BYTES * MOST_HANDLES)
    flags = getattr(_socket, "MSG_CMSG_CLOEXEC", 0)
    asked, ancillary, _, _ = control.recvmsg(1, space, flags)
    data = b"".join(item for _, _, item in ancillary)
    ends = range(0, len(data), FD_BYTES)
    handles = [int.from_bytes(data[end : end + FD_BYTES], sys.byteorder) for end in ends]
    return bool(asked), handles


if __name__ == "__main__":
    own = os.dup(0)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    Server(own).serve()
