"""How many processes the kernel has killed for memory in our control group.

cgroup v2: `oom_kill` of memory.events; v1: `oom_kill` of memory.oom_control
(Linux, Documentation/admin-guide/cgroup-v2.rst and cgroup-v1/memory.rst).
"""

import re
from pathlib import Path

PROC = Path("/proc/self")
_COUNT = re.compile(r"^oom_kill (\d{1,18})$", re.MULTILINE)


def oom_kills(proc: Path = PROC) -> int | None:
    """Return the counter's value now, None where the host does not show it."""
    for path in _counters(proc):
        try:
            found = _COUNT.search(path.read_text("ascii", "replace"))
        except OSError:
            continue
        if found is not None:
            return int(found[1])
    return None


def risen(before: int | None, after: int | None) -> int | None:
    """Return by how much a counter rose, None unless both readings are known."""
    return None if before is None or after is None else max(0, after - before)


def _counters(proc: Path) -> list[Path]:
    """The files in which the counter may stand: of the mounts that show our own group."""
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
        name = "memory.oom_control" if controllers else "memory.events"
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
