"""Keeps one process and everything it starts; a script of its own, standard library only.

Reads a request (one JSON line) and then lines `stop SECONDS` from stdin. The end of stdin means
that the launcher has died: the tree is killed at once. Writes one JSON line when the process has
started or could not, and one when the whole tree is gone. As a subreaper it adopts every orphan
of the tree, so that a descendant cannot leave it by forking twice or by a session of its own.
"""
# Plain os functions: pathlib would double the time that this script takes to start.

import ctypes
import json
import os
import select
import signal
import sys
import time
from contextlib import suppress
from typing import Any, NoReturn

PR_SET_PDEATHSIG = 1
PR_SET_CHILD_SUBREAPER = 36
LEFTOVER_GRACE_S = 0.5
KILL_WAIT_S = 10.0
RESCAN_S = 0.05
_IGNORED = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
_RESTORED = (*_IGNORED, signal.SIGCHLD, signal.SIGPIPE, signal.SIGXFSZ)


def become_subreaper() -> None:
    """Adopt orphaned descendants of the calling process (Linux; elsewhere nothing happens)."""
    _prctl(PR_SET_CHILD_SUBREAPER, 1)


def descendants(root: int) -> list[int]:
    """Return the process ids below `root`, as /proc shows them now."""
    children: dict[int, list[int]] = {}
    for name in filter(str.isdigit, os.listdir("/proc") if os.path.isdir("/proc") else ()):
        with suppress(OSError, ValueError, IndexError), open(f"/proc/{name}/stat", "rb") as file:
            parent = int(file.read().rpartition(b")")[2].split()[1])
            children.setdefault(parent, []).append(int(name))
    found, todo = [], [root]
    while todo:
        below = children.get(todo.pop(), [])
        found += below
        todo += below
    return found


def signal_each(pids: list[int], number: int) -> None:
    """Send a signal to each process that still exists."""
    for pid in pids:
        with suppress(ProcessLookupError, PermissionError):
            os.kill(pid, number)


def _prctl(option: int, value: int) -> None:
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(option, value, 0, 0, 0)


class Tree:
    """The kept process and its descendants."""

    def __init__(self, pid: int, wakeup: int) -> None:
        self.pid = pid
        self.wakeup = wakeup
        self.status: int | None = None
        self.stopped = False
        self.kill_at = float("inf")
        self._buffer = b""

    def reap(self) -> None:
        """Collect every ended child; remember how the kept process ended."""
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            if pid == self.pid:
                self.status = status

    def await_change(self, timeout_s: float | None, watched: tuple[int, ...]) -> list[int]:
        """Wait for a child to end or for one of `watched` to become readable."""
        ready, _, _ = select.select([self.wakeup, *watched], [], [], timeout_s)
        if self.wakeup in ready:
            os.read(self.wakeup, 4096)
        return ready

    def run(self) -> int:
        """Obey the launcher until the tree is gone; return how many processes were left behind."""
        left: list[int] | None = None
        while True:
            self.reap()
            if self.status is not None:
                now_left = descendants(os.getpid())
                if left is None:
                    left = now_left
                    self._end_leftovers(left)
                if not now_left:
                    return len(left)
            left_s = self.kill_at - time.monotonic()
            if left_s <= 0:
                self.kill()
                return len(left or ())
            if self.status is not None:
                left_s = min(left_s, RESCAN_S)
            if 0 in self.await_change(None if left_s == float("inf") else left_s, (0,)):
                self._read_orders()

    def obey(self, data: bytes) -> None:
        """Carry out the launcher's orders, of which `data` are the next bytes."""
        *lines, self._buffer = (self._buffer + data).split(b"\n")
        for line in lines:
            grace_s = float(line.split()[1])
            self.kill_at = min(self.kill_at, time.monotonic() + grace_s)
            self.reap()
            if not self.stopped and self.status is None:
                self.stopped = True
                signal_each([self.pid], signal.SIGTERM)

    def _read_orders(self) -> None:
        data = os.read(0, 4096)
        if not data:
            self.kill()
            os._exit(1)
        self.obey(data)

    def _end_leftovers(self, left: list[int]) -> None:
        signal_each(left, signal.SIGTERM)
        if not self.stopped:
            self.kill_at = min(self.kill_at, time.monotonic() + LEFTOVER_GRACE_S)

    def kill(self) -> None:
        """Kill all descendants, again and again until none is left or KILL_WAIT_S have passed.

        The group is killed in one call, for a process that forks and exits can outrun a list.
        """
        give_up_at = time.monotonic() + KILL_WAIT_S
        while time.monotonic() < give_up_at:
            signal_each([-self.pid, *descendants(os.getpid())], signal.SIGKILL)
            self.reap()
            if not descendants(os.getpid()) and self.status is not None:
                return
            self.await_change(RESCAN_S, ())


def _spawn(request: dict[str, Any]) -> tuple[int, dict[str, Any] | None]:
    """Fork and exec; return the process id, and what went wrong before exec."""
    keeper = os.getpid()
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            _become(request, keeper)
        except BaseException as error:  # noqa: BLE001 (process boundary: reported to the parent)
            report = {"type": type(error).__name__, "text": str(error)}
            os.write(writer, json.dumps(report | {"errno": getattr(error, "errno", None)}).encode())
        os._exit(127)
    os.close(writer)
    problem = b""
    while chunk := os.read(reader, 4096):
        problem += chunk
    os.close(reader)
    return pid, json.loads(problem) if problem else None


def _become(request: dict[str, Any], keeper: int) -> NoReturn:
    os.setsid()
    _prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != keeper:
        os._exit(127)
    flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW
    log = os.open(request["log"], flags, 0o640)
    null = os.open("/dev/null", os.O_RDONLY)
    for source, target in ((null, 0), (log, 1), (log, 2)):
        os.dup2(source, target)
    os.chdir(request["cwd"])
    for number in _RESTORED:
        signal.signal(number, signal.SIG_DFL)
    env = {**request["env"], "FLASHML_MAIN_PID": str(os.getpid())}
    os.execvpe(request["argv"][0], request["argv"], env)  # noqa: S606 (an argv, never a shell)


def _say(message: dict[str, Any]) -> None:
    with suppress(BrokenPipeError):
        os.write(1, json.dumps(message).encode() + b"\n")


def main() -> None:
    """Keep one process."""
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    for number in _IGNORED:
        signal.signal(number, signal.SIG_IGN)
    wakeup, notify = os.pipe()
    os.set_blocking(notify, False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.set_wakeup_fd(notify, warn_on_full_buffer=False)
    become_subreaper()
    data = b""
    while b"\n" not in data:
        chunk = os.read(0, 65536)
        if not chunk:
            return
        data += chunk
    line, _, orders = data.partition(b"\n")
    pid, problem = _spawn(json.loads(line))
    if problem is not None:
        os.waitpid(pid, 0)
        _say({"spawn_error": problem})
        return
    _say({"pid": pid})
    tree = Tree(pid, wakeup)
    tree.obey(orders)
    left = tree.run()
    _say({"status": tree.status, "stopped": tree.stopped, "left_behind": left})


if __name__ == "__main__":
    main()
