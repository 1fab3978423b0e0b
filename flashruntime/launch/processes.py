"""Processes as keepers and their servers see them: descendants, signals, waiting, messages."""
# C modules and plain os functions: json, signal, ctypes and pathlib would triple the starting time.

import os
import select
import sys
from _json import encode_basestring_ascii as quoted

TYPE_CHECKING = False
if TYPE_CHECKING:
    import signal
    from collections.abc import Collection
    from typing import Any
else:
    import _signal as signal

PR_SET_CHILD_SUBREAPER = 36


def become_subreaper() -> None:
    """Adopt orphaned descendants of the calling process (Linux; elsewhere nothing happens)."""
    prctl(PR_SET_CHILD_SUBREAPER, 1)


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
    ready = readable((wakeup, *watched), timeout_s)
    if wakeup in ready:
        os.read(wakeup, 4096)
    return ready


def readable(handles: "Collection[int]", timeout_s: float | None) -> list[int]:
    """Wait for one of the descriptors to have something to read, or its end."""
    poller = select.poll()
    for handle in handles:
        poller.register(handle, select.POLLIN)
    return [handle for handle, _ in poller.poll(None if timeout_s is None else timeout_s * 1000)]


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


def prctl(option: int, value: int) -> None:
    """Set an option of the calling process (Linux; elsewhere nothing happens)."""
    if sys.platform == "linux":
        import _ctypes  # noqa: PLC0415 (ctypes itself would take longer than all else here)

        itself: Any = None
        function = _ctypes.dlsym(_ctypes.dlopen(itself, 0), "prctl")
        _ctypes.call_function(function, (option, value, 0, 0, 0))


def receive(connection: int, size_bytes: int) -> bytes:
    """Read; a connection that was reset has ended."""
    try:
        return os.read(connection, size_bytes)
    except ConnectionError:
        return b""
