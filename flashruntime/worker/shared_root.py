"""Whether a worker's checkpoints go through the coordinator's store: only where that saves work.

Left to itself a worker relays them unless its checkpoint root is on a network file system, which
other workers can share, or the coordinator is on its own machine, whose loss would take both.
"""

import ipaddress
import os
import re
from pathlib import Path
from urllib.parse import urlsplit

from flashruntime.config import Relaying, WorkerSettings

MOUNTS = Path("/proc/self/mountinfo")
NETWORK_TYPES = frozenset(
    {
        "9p", "afs", "beegfs", "ceph", "cifs", "davfs", "gfs2", "glusterfs", "gpfs", "lustre",
        "nfs", "nfs4", "ocfs2", "orangefs", "panfs", "pvfs2", "smb3", "smbfs", "virtiofs", "wekafs",
    }
)  # fmt: skip
_ESCAPE = re.compile(r"\\([0-7]{3})")


def relays_checkpoints(settings: WorkerSettings, mounts: Path = MOUNTS) -> bool:
    """Return whether the setting, or the rule in its place, sends checkpoints to the store."""
    if settings.checkpoint_relay is not Relaying.AUTO:
        return settings.checkpoint_relay is Relaying.ON
    if is_loopback(settings.coordinator_url):
        return False
    return not is_on_network(settings.checkpoint_root, mounts)


def is_loopback(url: str) -> bool:
    """Return whether an address names this machine by its loopback interface."""
    host = urlsplit(url).hostname or ""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost" or host.endswith(".localhost")


def is_on_network(path: Path, mounts: Path = MOUNTS) -> bool:
    """Return whether a path is on a network file system, as far as the system's mounts tell.

    Source: proc_pid_mountinfo(5); the fifth field is the mount point, the type follows " - ".
    """
    try:
        lines = mounts.read_text(encoding="utf-8", errors="surrogateescape").splitlines()
    except OSError:
        return False
    real, kind, length = os.path.realpath(path), "", -1
    for line in lines:
        fields, _, rest = line.partition(" - ")
        point = _ESCAPE.sub(lambda match: chr(int(match[1], 8)), fields.split()[4])
        if len(point) >= length and _is_below(real, point):
            kind, length = rest.split()[0], len(point)
    return kind in NETWORK_TYPES or kind.startswith("fuse.")


def _is_below(path: str, point: str) -> bool:
    return path == point or path.startswith(point.rstrip("/") + "/")
