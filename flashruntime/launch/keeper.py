"""Keeps processes and everything they start; standard library only.

A keeper reads a request from its socket and then lines `stop SECONDS`; the end of the socket means
that the launcher has died: the tree is killed at once. It writes one JSON line when the processes
have started or could not, and one when all of the tree is gone. As a subreaper it adopts every
orphan, so that no descendant leaves the tree by forking twice or by a session of its own.
"""
# C modules and plain os functions: json, signal, ctypes and pathlib would triple the starting time.

import marshal
import os
import select
import sys
import time
from _json import encode_basestring_ascii as quoted

TYPE_CHECKING = False
if TYPE_CHECKING:
    import signal
    from collections.abc import Collection, Sequence
    from typing import Any
else:
    import _signal as signal

PR_SET_PDEATHSIG = 1
PR_SET_CHILD_SUBREAPER = 36
LEFTOVER_GRACE_S = 0.5
RANK_GRACE_S = 10.0
KILL_WAIT_S = 10.0
RESCAN_S = 0.05
IGNORED = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
RESTORED = (*IGNORED, signal.SIGCHLD, signal.SIGPIPE, signal.SIGXFSZ)
ERROR_FILES = ("FLASHML_ERROR_FILE", "TORCHELASTIC_ERROR_FILE")
CONTROL_VARIABLE = "FLASHML_WARM_FD"


def become_subreaper() -> None:
    """Adopt orphaned descendants of the calling process (Linux; elsewhere nothing happens)."""
    _prctl(PR_SET_CHILD_SUBREAPER, 1)


def descendants(root: int, spared: "Collection[int]" = ()) -> list[int]:
    """Return the process ids below `root`, as /proc shows them now, without the `spared` trees."""
    children: dict[int, list[int]] = {}
    for name in os.listdir("/proc") if os.path.isdir("/proc") else ():
        if name.isdigit():
            try:
                with open(f"/proc/{name}/stat", "rb") as file:
                    parent = int(file.read().rpartition(b")")[2].split()[1])
            except (OSError, ValueError, IndexError):
                continue
            children.setdefault(parent, []).append(int(name))
    found, todo = [], [root]
    while todo:
        below = [pid for pid in children.get(todo.pop(), []) if pid not in spared]
        found += below
        todo += below
    return found


def signal_each(pids: "Collection[int]", number: int) -> None:
    """Send a signal to each process that still exists."""
    for pid in pids:
        try:
            os.kill(pid, number)
        except (ProcessLookupError, PermissionError):
            continue


def watch_children() -> tuple[int, int]:
    """Return a file descriptor that becomes readable when a child ends, and its other end."""
    wakeup, notify = os.pipe()
    os.set_blocking(notify, False)
    os.set_blocking(wakeup, False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.set_wakeup_fd(notify, warn_on_full_buffer=False)
    return wakeup, notify


def leave(handles: "Collection[int]") -> None:
    """In a fork, close what it is not to share; asyncio may have unset the wakeup already."""
    signal.set_wakeup_fd(-1)
    for handle in handles:
        os.close(handle)


def await_change(wakeup: int, watched: "Collection[int]", timeout_s: float | None) -> list[int]:
    """Wait for a child to end or for one of `watched` to become readable."""
    ready, _, _ = select.select([wakeup, *watched], [], [], timeout_s)
    if wakeup in ready:
        os.read(wakeup, 4096)
    return ready


def say(connection: int, message: "dict[str, Any]") -> None:
    """Write one JSON line; nobody may be there to read it."""
    try:
        os.write(connection, f"{_json(message)}\n".encode())
    except OSError:
        return


def _json(value: "Any") -> str:
    if isinstance(value, dict):
        items = (f"{quoted(name)}: {_json(item)}" for name, item in value.items())
        return "{" + ", ".join(items) + "}"
    if isinstance(value, str):
        return str(quoted(value))
    return "null" if value is None else str(value).lower()


def _prctl(option: int, value: int) -> None:
    if sys.platform == "linux":
        import _ctypes  # noqa: PLC0415 (ctypes itself would take longer than all else here)

        itself: Any = None
        function = _ctypes.dlsym(_ctypes.dlopen(itself, 0), "prctl")
        _ctypes.call_function(function, (option, value, 0, 0, 0))


class Tree:
    """The kept processes, of which the first has rank 0, and their descendants."""

    def __init__(
        self, pids: list[int], request: "dict[str, Any]", orders: int, wakeup: int
    ) -> None:
        self.pids = pids
        self.request = request
        self.orders = orders
        self.wakeup = wakeup
        self.ends: dict[int, tuple[int, float]] = {}
        self.stopped = self._is_killing = False
        self.kill_at = float("inf")
        self._buffer = b""

    @property
    def has_ended(self) -> bool:
        """Whether every kept process has ended; its descendants may not have."""
        return len(self.ends) == len(self.pids)

    def reap(self) -> None:
        """Collect every ended child; where one rank fails, the others are to end too."""
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            if pid in self.pids:
                failed_before = any(code for code, _ in self.ends.values())
                # Nothing that befalls one rank ends another by SIGKILL: that came from outside.
                from_outside = status == signal.SIGKILL and not self._is_killing
                self.ends[pid] = status, 0.0 if from_outside else time.time()
                if status and not failed_before and not self.has_ended:
                    self._end_within(RANK_GRACE_S)

    def _end_within(self, grace_s: float) -> None:
        self.kill_at = min(self.kill_at, time.monotonic() + grace_s)
        signal_each([pid for pid in self.pids if pid not in self.ends], signal.SIGTERM)

    def run(self) -> int:
        """Obey the launcher until the tree is gone; return how many processes were left behind."""
        left: list[int] | None = None
        while True:
            self.reap()
            if self.has_ended:
                now_left = descendants(os.getpid())
                if left is None:
                    left = [] if self.request.get("lingers") else now_left
                    self._end_leftovers(left)
                if not now_left:
                    return len(left)
            left_s = self.kill_at - time.monotonic()
            if left_s <= 0:
                self.kill()
                return len(left or ())
            if self.has_ended:
                left_s = min(left_s, RESCAN_S)
            wait_s = None if left_s == float("inf") else left_s
            if self.orders in await_change(self.wakeup, (self.orders,), wait_s):
                self._read_orders()

    def obey(self, data: bytes) -> None:
        """Carry out the launcher's orders, of which `data` are the next bytes."""
        *lines, self._buffer = (self._buffer + data).split(b"\n")
        for line in lines:
            grace_s = float(line.split()[1])
            self.kill_at = min(self.kill_at, time.monotonic() + grace_s)
            self.reap()
            if not self.stopped and not self.has_ended:
                self.stopped = True
                self._end_within(grace_s)

    def _read_orders(self) -> None:
        data = _receive(self.orders, 4096)
        if not data:
            self.kill()
            os._exit(1)
        self.obey(data)

    def _end_leftovers(self, left: list[int]) -> None:
        signal_each(left, signal.SIGTERM)
        if not self.stopped and not self.request.get("lingers"):
            self.kill_at = min(self.kill_at, time.monotonic() + LEFTOVER_GRACE_S)

    def kill(self) -> None:
        """Kill all descendants, again and again until none is left or KILL_WAIT_S have passed.

        The groups are killed in one call each, for a process that forks and exits can outrun a
        list.
        """
        self._is_killing, give_up_at = True, time.monotonic() + KILL_WAIT_S
        while time.monotonic() < give_up_at:
            groups = [-pid for pid in self.pids]
            signal_each([*groups, *descendants(os.getpid())], signal.SIGKILL)
            self.reap()
            if not descendants(os.getpid()) and self.has_ended:
                return
            await_change(self.wakeup, (), RESCAN_S)

    def status(self) -> int | None:
        """Return the wait status of the rank that failed first, and leave its error files alone.

        The moment of an uncaught exception is that of its report: the process ends later.
        """
        if not self.has_ended:
            return None
        failed = {
            rank: self._failed_at(rank) for rank, pid in enumerate(self.pids) if self.ends[pid][0]
        }
        cause = min(failed, key=failed.__getitem__, default=0)
        for name in ERROR_FILES:
            reported = self.request["ranks"][cause].get(name)
            if reported is not None and os.path.exists(reported):
                os.replace(reported, self.request["env"][name])
        return self.ends[self.pids[cause]][0]

    def _failed_at(self, rank: int) -> float:
        moments = [self.ends[self.pids[rank]][1]]
        for name in ERROR_FILES:
            try:
                moments.append(os.stat(self.request["ranks"][rank].get(name, "")).st_mtime)
            except OSError:
                continue
        return min(moments)


def _receive(connection: int, size_bytes: int) -> bytes:
    """Read; a connection that was reset has ended."""
    try:
        return os.read(connection, size_bytes)
    except ConnectionError:
        return b""


def _read_request(connection: int, idle_s: float | None) -> "tuple[dict[str, Any], bytes]":
    """Return the request, whose length stands on a line before it, and what came after it."""
    data, length = b"", None
    while length is None or len(data) < length:
        is_ready = select.select([connection], [], [], idle_s)[0]
        chunk = _receive(connection, 65536) if is_ready else b""
        if not chunk:
            os._exit(0)
        data += chunk
        if length is None and b"\n" in data:
            head, _, data = data.partition(b"\n")
            length = int(head)
    return marshal.loads(data[:length]), data[length:]  # noqa: S302 (from our own launcher)


def keep(
    connection: int, passed: "Sequence[int]", idle_s: float | None, *, in_place: bool
) -> "dict[str, Any] | None":
    """Keep what the launcher asks for, and exit.

    Returns only with `in_place`, in each process to be run, with its request.
    """
    become_subreaper()
    wakeup, notify = watch_children()
    request, orders = _read_request(connection, idle_s)
    if passed:
        os.set_inheritable(passed[0], True)
        request["env"][CONTROL_VARIABLE] = str(passed[0])
    pids: list[int] = []
    for overlay in request["ranks"]:
        request["env_of_rank"] = {**request["env"], **overlay}
        pid, problem = _spawn(request, in_place=in_place)
        if pid == 0:
            leave((connection, wakeup, notify))
            return request
        pids.append(pid)
        if problem:
            signal_each(pids, signal.SIGKILL)
            say(connection, {"spawn_error": problem})
            os._exit(0)
    for handle in passed:
        os.close(handle)
    say(connection, {"keeper": os.getpid(), "pid": pids[0]})
    tree = Tree(pids, request, connection, wakeup)
    tree.obey(orders)
    left = tree.run()
    say(connection, {"status": tree.status(), "stopped": tree.stopped, "left_behind": left})
    os._exit(0)


def _spawn(request: "dict[str, Any]", *, in_place: bool) -> "tuple[int, str]":
    """Fork, and exec unless `in_place`; return the process id, and what went wrong, as JSON."""
    keeper = os.getpid()
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            os.close(reader)
            _settle(request, keeper)
            if not in_place:
                argv = request["argv"]
                os.execvpe(argv[0], argv, request["env_of_rank"])  # noqa: S606 (never a shell)
            os.close(writer)
            return 0, ""
        except BaseException as error:  # noqa: BLE001 (process boundary: reported to the parent)
            report = {"type": type(error).__name__, "text": str(error)}
            say(writer, report | {"errno": getattr(error, "errno", None)})
        os._exit(127)
    os.close(writer)
    problem = b""
    while chunk := os.read(reader, 4096):
        problem += chunk
    os.close(reader)
    return pid, problem.decode()


def _settle(request: "dict[str, Any]", keeper: int) -> None:
    os.setsid()
    _prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != keeper:
        os._exit(127)
    request["env_of_rank"]["FLASHML_MAIN_PID"] = str(os.getpid())
    flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW
    log = (
        os.memfd_create("log") if request["log"] is None else os.open(request["log"], flags, 0o640)
    )
    null = os.open("/dev/null", os.O_RDONLY)
    for source, target in ((null, 0), (log, 1), (log, 2)):
        os.dup2(source, target)
    os.close(log)
    os.close(null)
    os.chdir(request["cwd"])
    for number in RESTORED:
        signal.signal(number, signal.SIG_DFL)
