"""Time as a port: durations are monotonic, wall-clock is only ever a label."""

import time
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Protocol


class Clock(Protocol):
    """What the runtime may know about time."""

    def monotonic_ns(self) -> int:
        """Nanoseconds of CLOCK_MONOTONIC; comparable only between equal boot ids."""
        ...

    def utc_now(self) -> datetime:
        """Aware UTC wall-clock time, for people; never subtracted."""
        ...


class SystemClock:
    """The clock of this machine."""

    def monotonic_ns(self) -> int:
        """Nanoseconds of CLOCK_MONOTONIC."""
        return time.monotonic_ns()

    def utc_now(self) -> datetime:
        """Aware UTC wall-clock time."""
        return datetime.now(UTC)


@cache
def boot_id() -> str:
    """Return the kernel's boot id (shared by the containers of a host), or "unknown" off Linux."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    except OSError:
        return "unknown"
