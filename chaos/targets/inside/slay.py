"""Send SIGKILL to every process of a frozen container: once thawed, none does anything more.

Request: {"container_id"}; an empty one finds nobody. Answer: {"killed": how many}. Processes are
told by their cgroup, which names the container.
"""

import os
import signal
from contextlib import suppress
from pathlib import Path
from typing import Any


def processes(container_id: str) -> list[int]:
    """Return the process ids of a container, as this process sees them."""
    found = []
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        with suppress(OSError):
            if container_id in (entry / "cgroup").read_text(encoding="utf-8"):
                found.append(int(entry.name))
    return found


def answer(request: dict[str, Any]) -> dict[str, Any]:
    """Kill all of them; one that is gone already is fine."""
    container_id = str(request["container_id"])
    found = processes(container_id) if len(container_id) == 64 else []
    for pid in found:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    return {"killed": len(found)}
