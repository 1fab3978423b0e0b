"""The keepers of this process, forked by a server that is started once, and ahead of their use."""

import atexit
import marshal
import os
import resource
import socket
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from threading import Lock
from typing import Any
from weakref import WeakSet

from flashruntime.launch.environment import is_inherited

TRIES = 3
_SERVER = Path(__file__).with_name("keeper_server.py")
_LIMITS = sorted({getattr(resource, name) for name in dir(resource) if name.startswith("RLIMIT_")})
# Every end of ours: a process that this one forks must not keep them open.
_SOCKETS: "WeakSet[socket.socket]" = WeakSet()


class Keepers:
    """Asks a server for keepers over `control`; one is always asked for ahead."""

    def __init__(self, control: socket.socket) -> None:
        _SOCKETS.add(control)
        self._control = control
        self._spare: socket.socket | None = None
        self._lock = Lock()

    def open(self, request: Mapping[str, Any], passed: Sequence[int] = ()) -> socket.socket:
        """Return the connection to a keeper that has the request; OSError without a server."""
        with self._lock:
            spare, self._spare = self._spare, None
            usable = spare is not None and not passed and not _has_ended(spare)
            connection = spare if spare is not None and usable else self._ask(passed)
        data = marshal.dumps(dict(request), 2)
        connection.sendall(b"%d\n%b" % (len(data), data))
        return connection

    def restock(self) -> None:
        """Ask for the keeper that is to be taken next."""
        with self._lock, suppress(OSError):
            if self._spare is None:
                self._spare = self._ask(())

    def close(self) -> None:
        """Ask for no more; keepers at work go on."""
        with self._lock:
            # Somebody may be reading it, which close() alone would not end.
            _shut_down(self._control)
            self._control.close()
            if self._spare is not None:
                self._spare.close()

    def _ask(self, passed: Sequence[int]) -> socket.socket:
        ours, theirs = socket.socketpair()
        _SOCKETS.add(ours)
        with theirs:
            socket.send_fds(self._control, [b"k"], [theirs.fileno(), *passed])
        return ours


class _Server:
    """The server of cold starts; `state` is what its processes inherit of this one."""

    def __init__(self, state: object) -> None:
        self.state = state
        ours, theirs = socket.socketpair()
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-I", "-S", str(_SERVER)],
                stdin=theirs.fileno(),
                stdout=subprocess.DEVNULL,
                start_new_session=True,
                env={name: value for name, value in os.environ.items() if is_inherited(name)},
            )
        self.pid = self._process.pid
        self.keepers = Keepers(ours)

    @property
    def has_ended(self) -> bool:
        return self._process.poll() is not None

    def disown(self) -> None:
        """Leave its end to whoever adopts it."""
        self._process.returncode = 0


class _Servers:
    """The servers of this process: the newest, and earlier ones that still have work."""

    def __init__(self) -> None:
        self.lock = Lock()
        self.all: list[_Server] = []

    def newest(self) -> _Server:
        """Return a server of which the processes inherit what they would from this one."""
        state = inherited_state()
        with self.lock:
            self.all = [server for server in self.all if not server.has_ended]
            if not self.all or self.all[-1].state != state:
                if self.all:
                    self.all[-1].keepers.close()
                self.all.append(_Server(state))
                self.all[-1].keepers.restock()
            return self.all[-1]


_servers = _Servers()


def prepare() -> Keepers:
    """Return the keepers for cold starts; at the first call their server is started."""
    return _servers.newest().keepers


def open_cold(
    request: Mapping[str, Any], passed: Sequence[int] = ()
) -> tuple[socket.socket, Keepers]:
    """Return the connection to a keeper that has the request, and where it came from."""
    for _ in range(TRIES - 1):
        with suppress(OSError):
            return _open_at(prepare(), request, passed)
    return _open_at(prepare(), request, passed)


def _open_at(
    keepers: Keepers, request: Mapping[str, Any], passed: Sequence[int]
) -> tuple[socket.socket, Keepers]:
    return keepers.open(request, passed), keepers


def server_pids() -> frozenset[int]:
    """Return the process ids of the servers that are alive."""
    return frozenset(server.pid for server in _servers.all if not server.has_ended)


def inherited_state() -> tuple[object, ...]:
    """Return what a process inherits that its launcher does not name: limits, ids, cores."""
    umask = next(
        (line for line in _own_status() if line.startswith("Umask:")),
        "",
    )
    cores = os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else ()
    ids = (os.getuid(), os.geteuid(), os.getgid(), os.getegid(), *os.getgroups())
    limits = tuple(resource.getrlimit(limit) for limit in _LIMITS)
    return umask, frozenset(cores), os.getpriority(os.PRIO_PROCESS, 0), ids, limits


def _own_status() -> list[str]:
    try:
        with open("/proc/thread-self/status", encoding="ascii", errors="replace") as file:  # noqa: PTH123
            return file.read(1024).splitlines()
    except OSError:
        return []


def _has_ended(connection: socket.socket) -> bool:
    """Whether a keeper without a request has ended: only its server has anything to say then."""
    try:
        connection.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT)
    except BlockingIOError:
        return False
    except OSError:
        return True
    return True


def _forget() -> None:
    """In a process that this one has forked: it has no servers, and keeps nobody's alive."""
    global _servers  # noqa: PLW0603 (a fork has its own)
    for server in _servers.all:
        server.disown()
    _servers = _Servers()
    for connection in list(_SOCKETS):
        # Unlike close(), this does not wait for the readers of the other process.
        handle = connection.detach()
        if handle >= 0:
            os.close(handle)
    _SOCKETS.clear()


def _shut_down(connection: socket.socket) -> None:
    with suppress(OSError):
        connection.shutdown(socket.SHUT_RDWR)


@atexit.register
def _close() -> None:
    """End all that is left, as the end of this process is about to."""
    for connection in list(_SOCKETS):
        _shut_down(connection)
    for server in _servers.all:
        server.disown()


os.register_at_fork(after_in_child=_forget)
