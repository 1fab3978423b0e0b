"""Ray and Accelerate, in a virtual environment of their own, where there is one."""

import os
import subprocess
from functools import cache
from pathlib import Path

from benchmarks.schema import Unavailable

VARIABLE = "FLASHML_BENCH_COMPARATORS"
DEFAULT = "/opt/comparators/bin/python"
# Ray's usage statistics are off; the store of a PyTorch without libuv is the older one.
ENV = {"RAY_USAGE_STATS_ENABLED": "0", "RAY_AIR_NEW_OUTPUT": "0", "USE_LIBUV": "0"}
_VERSION = "import importlib.metadata as m, sys; print(m.version(sys.argv[1]))"


def python(package: str) -> str:
    """Return the interpreter that has a package; Unavailable says how to get one."""
    if version(package) is None:
        raise Unavailable(
            f"{package} is not installed (`make bench-comparators` makes an image with it)"
        )
    return _interpreter()


@cache
def version(package: str) -> str | None:
    """Return the installed version of a comparator, None without it."""
    if not Path(_interpreter()).exists():
        return None
    command = [_interpreter(), "-c", _VERSION, package]
    found = subprocess.run(command, check=False, capture_output=True, text=True, timeout=60)
    return found.stdout.strip() or None


def _interpreter() -> str:
    return os.environ.get(VARIABLE) or DEFAULT
