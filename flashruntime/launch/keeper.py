"""Keeps processes and everything they start; standard library only.

A keeper reads a request from its socket and then lines `stop SECONDS`; the end of the socket means
that the launcher has died: the tree is killed at once. It writes one JSON line when the processes
have started or could not, and one when all of the tree is gone. As a subreaper it adopts every
orphan, so that no descendant leaves the tree by forking twice or by a session of its own.
"""
# C modules and plain os functions: json, signal, ctypes and pathlib would triple the starting time.

import marshal
import os
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    import signal
    from collections.abc import Sequence
    from typing import Any
else:
    import _signal as signal
if TYPE_CHECKING or __package__:
    from flashruntime.launch import processes
else:
    import processes  # beside this file, of which the server runs without the package

PR_SET_PDEATHSIG = 1
LEFTOVER_GRACE_S = 0.5
RANK_GRACE_S = 10.0
KILL_WAIT_S = 10.0
RESCAN_S = 0.05
IGNORED = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
RESTORED = (*IGNORED, signal.SIGCHLD, signal.SIGPIPE, signal.SIGXFSZ)
ERROR_FILES = ("FLASHML_ERROR_FILE", "TORCHELASTIC_ERROR_FILE")
CONTROL_VARIABLE = "FLASHML_WARM_FD"


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
        processes.signal_each([pid for pid in self.pids if pid not in self.ends], signal.SIGTERM)

    def run(self) -> int:
        """Obey the launcher until the tree is gone; return how many processes were left behind."""
        left: list[int] | None = None
        while True:
            self.reap()
            if self.has_ended:
                now_left = processes.descendants(os.getpid())
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
            if self.orders in processes.await_change(self.wakeup, (self.orders,), wait_s):
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
        data = processes.receive(self.orders, 4096)
        if not data:
            self.kill()
            os._exit(1)
        self.obey(data)

    def _end_leftovers(self, left: list[int]) -> None:
        processes.signal_each(left, signal.SIGTERM)
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
            processes.signal_each([*groups, *processes.descendants(os.getpid())], signal.SIGKILL)
            self.reap()
            if not processes.descendants(os.getpid()) and self.has_ended:
                return
            processes.await_change(self.wakeup, (), RESCAN_S)

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


def _read_request(connection: int, idle_s: float | None) -> "tuple[dict[str, Any], bytes]":
    """Return the request, whose length stands on a line before it, and what came after it."""
    data, length = b"", None
    while length is None or len(data) < length:
        is_ready = processes.readable((connection,), idle_s)
        chunk = processes.receive(connection, 65536) if is_ready else b""
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
    processes.become_subreaper()
    wakeup, notify = processes.watch_children()
    request, orders = _read_request(connection, idle_s)
    if passed:
        os.set_inheritable(passed[0], True)
        request["env"][CONTROL_VARIABLE] = str(passed[0])
    pids: list[int] = []
    for overlay in request["ranks"]:
        request["env_of_rank"] = {**request["env"], **overlay}
        pid, problem = _spawn(request, in_place=in_place)
        if pid == 0:
            processes.leave((connection, wakeup, notify))
            return request
        pids.append(pid)
        if problem:
            processes.signal_each(pids, signal.SIGKILL)
            processes.say(connection, {"spawn_error": problem})
            os._exit(0)
    for handle in passed:
        os.close(handle)
    processes.say(connection, {"keeper": os.getpid(), "pid": pids[0]})
    tree = Tree(pids, request, connection, wakeup)
    tree.obey(orders)
    left = tree.run()
    processes.say(
        connection, {"status": tree.status(), "stopped": tree.stopped, "left_behind": left}
    )
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
            processes.say(writer, report | {"errno": getattr(error, "errno", None)})
        os._exit(127)
    os.close(writer)
    problem = b""
    while chunk := os.read(reader, 4096):
        problem += chunk
    os.close(reader)
    return pid, problem.decode()


def _settle(request: "dict[str, Any]", keeper: int) -> None:
    os.setsid()
    processes.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
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
