"""Look at the processes of one container from the host's side, and send one of them a signal.

Request: {"root": host pid of its first process, "verb": "list" | "usage" | "signal", "pid",
"signal"}. A process counts as the container's where it is in the pid namespace of `root`; any
other is refused. Answer: {"processes"}, {"usage"} or {"sent"}; of a `root` that is gone, nothing.
"""

import os
import re
import signal
from pathlib import Path
from typing import Any

PROC = Path("/proc")
USAGE = {
    "oom_kills": (r"^oom_kill (\d+)$", ("memory/memory.oom_control", "memory.events")),
    "memory_bytes": (r"^(\d+)$", ("memory/memory.usage_in_bytes", "memory.current")),
    "memory_limit_bytes": (r"^(\d+)$", ("memory/memory.limit_in_bytes", "memory.max")),
    "throttled_periods": (
        r"^nr_throttled (\d+)$",
        ("cpu/cpu.stat", "cpu,cpuacct/cpu.stat", "cpu.stat"),
    ),
}


def namespace(pid: int | str) -> str | None:
    """Return the pid namespace of a process, None where it is gone."""
    try:
        return str((PROC / str(pid) / "ns" / "pid").readlink())
    except OSError:
        return None


def described(pid: str) -> dict[str, Any] | None:
    """Return a process with its words; None where it has ended or is ending."""
    try:
        status = (PROC / pid / "status").read_text("utf-8", "replace")
        words = (PROC / pid / "cmdline").read_bytes().rstrip(b"\0").split(b"\0")
    except OSError:
        return None
    fields = dict(line.split(":\t", 1) for line in status.splitlines() if ":\t" in line)
    if fields["State"].startswith(("Z", "X")):
        return None
    return {
        "pid": int(pid),
        "inner_pid": int(fields["NSpid"].split()[-1]),
        "parent": int(fields["PPid"]),
        "command": b" ".join(words).decode("utf-8", "replace") or f"[{fields['Name']}]",
    }


def listing(root: int) -> list[dict[str, Any]]:
    """Return the processes of the container whose first process is `root`."""
    home = namespace(root)
    numbers = [entry.name for entry in PROC.iterdir() if entry.name.isdecimal()]
    ours = [number for number in numbers if home is not None and namespace(number) == home]
    found = [one for number in ours if (one := described(number)) is not None]
    return sorted(found, key=lambda one: int(one["inner_pid"]))


def usage(root: int) -> dict[str, int | None]:
    """Read the counters that the container itself would see, in cgroup v1 or v2."""
    groups = PROC / str(root) / "root" / "sys" / "fs" / "cgroup"
    return {name: counter(groups, *where) for name, where in USAGE.items()}


def counter(groups: Path, pattern: str, names: tuple[str, ...]) -> int | None:
    """Return the number in the first of these files that holds one."""
    for name in names:
        try:
            text = (groups / name).read_text("ascii", "replace")
        except OSError:
            continue
        if found := re.search(pattern, text, re.MULTILINE):
            return int(found[1])
    return None


def send(root: int, pid: int, name: str) -> bool:
    """Send a signal to a process of the container; PermissionError for any other."""
    try:
        handle = os.pidfd_open(pid)
    except ProcessLookupError:
        return False
    try:
        home, place = namespace(root), namespace(pid)
        if place is None or home is None:
            return False
        if place != home:
            raise PermissionError(f"process {pid} is none of the container's: refused")
        signal.pidfd_send_signal(handle, signal.Signals[name])
    except ProcessLookupError:
        return False
    finally:
        os.close(handle)
    return True


def answer(request: dict[str, Any]) -> dict[str, Any]:
    """Do what is asked."""
    root = int(request["root"])
    if request["verb"] == "list":
        return {"processes": listing(root)}
    if request["verb"] == "usage":
        return {"usage": usage(root)}
    return {"sent": send(root, int(request["pid"]), request["signal"])}
