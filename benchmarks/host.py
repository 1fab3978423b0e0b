"""The machine that is measured, by its effective limits; names of hosts and users are not kept."""

import importlib.metadata
import os
import platform
import re
import subprocess
import sys
import unicodedata
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

import flashruntime
from benchmarks.schema import Host
from flashruntime.launch.cores import usable_cores

COMMIT_VARIABLE = "FLASHML_BENCH_COMMIT"
PLACE_VARIABLE = "FLASHML_BENCH_PLACE"
MAX_SLUG = 80
_GIB = 1024**3
_ROOT = Path(__file__).parents[1]
_MEMORY_LIMITS = ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes")


def describe(environment: Mapping[str, str], scratch: Path) -> Host:
    """Return this machine, its disk being that of `scratch`.

    Where the command runs in an image, `environment` names it.
    """
    return Host(
        os=_os_name(),
        cpu=_cpu_name(),
        cores=usable_cores(),
        ram_gb=round(_ram_bytes() / _GIB, 1),
        python=platform.python_version(),
        torch=installed("torch"),
        flashruntime=flashruntime.__version__,
        kernel=platform.release() or "unknown",
        load_1m=_load(),
        gpu=_gpu(),
        disk=filesystem(scratch),
        commit=environment.get(COMMIT_VARIABLE) or commit(_ROOT),
        place=environment.get(PLACE_VARIABLE) or "host",
    )


def slug(host: Host) -> str:
    """Return the machine as a part of a file name: system, processor, cores."""
    return plain_name(f"{platform.system()} {host.cpu} {host.cores} cores")


def plain_name(text: str) -> str:
    """Return any text as lower-case letters, digits and hyphens, never empty."""
    ascii_text = unicodedata.normalize("NFKD", text).encode("ascii", "ignore").decode().lower()
    words = re.sub(r"[^a-z0-9]+", "-", ascii_text)[:MAX_SLUG].strip("-")
    return words or "unknown"


def installed(package: str) -> str | None:
    """Return the version of an installed package without importing it, None without it."""
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def filesystem(path: Path) -> str:
    """Return the type of the file system on which `path` lies."""
    place = path.resolve()
    with suppress(OSError):
        mounts = Path("/proc/self/mounts").read_text(encoding="utf-8").splitlines()
        points = {line.split()[1]: line.split()[2] for line in mounts}
        for parent in (place, *place.parents):
            if str(parent) in points:
                return points[str(parent)]
    return "unknown"


def commit(root: Path) -> str | None:
    """Return the revision of a checkout, marked where files were changed since."""
    command = ["git", "-C", str(root), "describe", "--always", "--dirty", "--abbrev=12"]
    with suppress(OSError, subprocess.SubprocessError):
        return subprocess.run(
            command, check=True, capture_output=True, text=True, timeout=10
        ).stdout.strip()
    return None


def _os_name() -> str:
    with suppress(OSError):
        return platform.freedesktop_os_release()["PRETTY_NAME"]
    return platform.platform(terse=True) or sys.platform


def _cpu_name() -> str:
    with suppress(OSError):
        text = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace")
        if found := re.search(r"^model name\s*:\s*(.+)$", text, re.MULTILINE):
            return found[1].strip()
    return platform.processor() or platform.machine() or "unknown"


def _ram_bytes() -> int:
    """Return the memory of the machine, or the limit of this process's control group below it."""
    total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    for name in _MEMORY_LIMITS:
        with suppress(OSError, ValueError):
            return min(total, int(Path(name).read_text(encoding="ascii")))
    return total


def _load() -> float | None:
    with suppress(OSError):
        return round(os.getloadavg()[0], 2)
    return None


def _gpu() -> str | None:
    command = ["nvidia-smi", "--query-gpu=name", "--format=csv,noheader"]
    with suppress(OSError, subprocess.SubprocessError):
        names = subprocess.run(command, check=True, capture_output=True, text=True, timeout=10)
        return names.stdout.strip().replace("\n", ", ") or None
    return None
