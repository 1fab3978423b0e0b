"""The memory of our control group: its limit, and how many processes were killed for it.

cgroup v2: `oom_kill` of memory.events, memory.max; v1: `oom_kill` of memory.oom_control,
memory.limit_in_bytes (Linux, Documentation/admin-guide/cgroup-v2.rst and cgroup-v1/memory.rst).
"""

import re
from pathlib import Path

PROC = Path("/proc/self")
_V1_NAMES = {"memory.events": "memory.oom_control", "memory.max": "memory.limit_in_bytes"}
_TOTAL = re.compile(r"^MemTotal: +(\d{1,15}) kB$", re.MULTILINE)
_COUNT = re.compile(r"^oom_kill (\d{1,18})$", re.MULTILINE)


def oom_kills(proc: Path = PROC) -> int | None:
    """Return the counter's value now, None where the host does not show it."""
    for path in _files(proc, "memory.events"):
        try:
            found = _COUNT.search(path.read_text("ascii", "replace"))
        except OSError:
            continue
        if found is not None:
            return int(found[1])
    return None


def limit_bytes(proc: Path = PROC) -> int:
    """Return how much memory this process and those beside it may use, 0 where that is unknown."""
    known = [limit for path in _files(proc, "memory.max") if (limit := _number(path)) is not None]
    try:
        total = _TOTAL.search((proc.parent / "meminfo").read_text("ascii", "replace"))
    except OSError:
        total = None
    known += [] if total is None else [int(total[1]) * 1024]
    return min(known, default=0)


def _number(path: Path) -> int | None:
    """Return the number in a file; None if there is none, as where nothing is limited."""
    try:
        text = path.read_text("ascii", "replace").strip()
    except OSError:
        return None
    return int(text) if text.isdecimal() else None


def risen(before: int | None, after: int | None) -> int | None:
    """Return by how much a counter rose, None unless both readings are known."""
    return None if before is None or after is None else max(0, after - before)


def _files(proc: Path, v2_name: str) -> list[Path]:
    """The files that may hold a value of our own group: of the mounts that show it."""
    try:
        groups = (proc / "cgroup").read_text("utf-8", "replace").splitlines()
        mounts = (proc / "mountinfo").read_text("utf-8", "replace").splitlines()
    except OSError:
        return []
    found = []
    for group in groups:
        _, _, rest = group.partition(":")
        controllers, _, path = rest.partition(":")
        if controllers and "memory" not in controllers.split(","):
            continue
        name = _V1_NAMES[v2_name] if controllers else v2_name
        found += [place / name for place in _places(mounts, controllers, path)]
    return found


def _places(mounts: list[str], controllers: str, path: str) -> list[Path]:
    """Where the hierarchy of these controllers shows the group `path`."""
    found = []
    for mount in mounts:
        fields, _, rest = mount.partition(" - ")
        words, kind = fields.split(), rest.split()
        if len(words) < 5 or len(kind) < 3 or kind[0] != ("cgroup" if controllers else "cgroup2"):
            continue
        if controllers and "memory" not in kind[2].split(","):
            continue
        root, place = words[3], Path(words[4])
        below = path.removeprefix(root.rstrip("/")) if path.startswith(root) else ""
        found.append(place / below.strip("/"))
    return found
