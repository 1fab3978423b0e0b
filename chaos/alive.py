"""Which runs are under way: a mark that the kernel takes back when its process dies.

The mark is a name in Linux's abstract socket namespace: no file is left behind.
"""

import socket
import sys


def mark(run_id: str) -> socket.socket | None:
    """Mark a run as under way until the returned socket is closed; None where another holds it."""
    holder = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    if not sys.platform.startswith("linux"):
        return holder
    try:
        holder.bind(f"\0flashruntime-chaos/{run_id}")
    except OSError:
        holder.close()
        return None
    return holder


def under_way(run_id: str) -> bool:
    """Whether a living process carries out this run (always False where there are no marks)."""
    held = mark(run_id)
    if held is None:
        return True
    held.close()
    return False
