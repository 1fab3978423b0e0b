"""How many cores this process may use: its affinity, and the quota of its control group."""

import os
from pathlib import Path

_QUOTA_V2 = Path("/sys/fs/cgroup/cpu.max")
_QUOTA_V1 = Path("/sys/fs/cgroup/cpu")


def usable_cores() -> int:
    """Return the number of cores, at least 1."""
    affinity = getattr(os, "sched_getaffinity", None)
    cores = len(affinity(0)) if affinity else os.cpu_count() or 1
    quota = _quota()
    return max(1, cores if quota is None else min(cores, int(quota)))


def _quota() -> float | None:
    try:
        if _QUOTA_V2.exists():
            quota, period = _QUOTA_V2.read_text(encoding="ascii").split()
        else:
            quota = (_QUOTA_V1 / "cpu.cfs_quota_us").read_text(encoding="ascii")
            period = (_QUOTA_V1 / "cpu.cfs_period_us").read_text(encoding="ascii")
        return float(quota) / float(period) if float(quota) > 0 else None
    except (OSError, ValueError):
        return None
