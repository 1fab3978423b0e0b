"""What the containers' logs said around each fault: bounded, whatever they hold.

A line is placed by its own `mono_ns`, else by its wall time, else by the line before it.
"""

import re
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from chaos.drawing.bands import Band
from chaos.history import History

NS = 1_000_000_000
BEFORE_NS, AFTER_NS = 2 * NS, 3 * NS
LONGEST_NS = 10 * NS
"""Of a fault that is on for longer, what was said later is left out."""
MOST_FAULTS, MOST_LINES, MOST_CHARACTERS = 40, 25, 300
MONO = re.compile(r'"mono_ns": ?(\d{1,19})\b')
WALL = re.compile(r'"(?:ts|time)": ?"([0-9T:.+Z-]{20,35})"')
LEASE = re.compile(r'"lease_id": ?"([\w-]{1,80})"')
UNANSWERED = '"heartbeat_unanswered"'


@dataclass(frozen=True, slots=True)
class Said:
    """A line of a log, cut where it is long, and how long after the fault it was said."""

    after_s: float
    line: str


@dataclass(frozen=True, slots=True)
class Logs:
    """What was said: fault id -> log -> lines; lease id -> when its heartbeats had no answer."""

    around: dict[str, dict[str, tuple[Said, ...]]]
    unanswered: dict[str, tuple[int, ...]]


def read(folder: Path, history: History, found: Sequence[Band]) -> Logs:
    """Read the logs of a run directory; where there are none, nothing was said."""
    shown = found[:MOST_FAULTS]
    offset_ns = _wall_offset(history)
    around: dict[str, dict[str, tuple[Said, ...]]] = {band.fault_id: {} for band in shown}
    unanswered: dict[str, list[int]] = {}
    for path in sorted(folder.glob("*.log")):
        lines = [*_timed(path, offset_ns)]
        for at_ns, line in lines:
            if UNANSWERED in line and (lease := LEASE.search(line)) is not None:
                unanswered.setdefault(lease[1], []).append(at_ns)
        times = [at_ns for at_ns, _ in lines]
        for band in shown:
            if said := _near(band, lines, times):
                around[band.fault_id][path.stem] = said
    return Logs(around, {lease: tuple(times) for lease, times in unanswered.items()})


def _near(band: Band, lines: Sequence[tuple[int, str]], times: Sequence[int]) -> tuple[Said, ...]:
    """Return the lines around a fault, those nearest to its firing where there are many."""
    end = min(band.end_ns, band.begin_ns + LONGEST_NS) + AFTER_NS
    first = bisect_left(times, band.begin_ns - BEFORE_NS)
    last = bisect_left(times, end)
    near = sorted(range(first, last), key=lambda at: abs(times[at] - band.begin_ns))[:MOST_LINES]
    return tuple(Said((times[at] - band.begin_ns) / NS, lines[at][1]) for at in sorted(near))


def _timed(path: Path, offset_ns: int | None) -> Iterator[tuple[int, str]]:
    """Yield the lines with their times, which never go back."""
    now = 0
    with path.open(encoding="utf-8", errors="replace") as stream:
        for line in stream:
            at_ns = _time(line, offset_ns)
            now = max(now, at_ns or now)
            yield now, _cut(line.rstrip("\n"))


def _cut(line: str) -> str:
    return line if len(line) <= MOST_CHARACTERS else f"{line[:MOST_CHARACTERS]} …"


def _time(line: str, offset_ns: int | None) -> int | None:
    if (mono := MONO.search(line)) is not None:
        return int(mono[1])
    wall = WALL.search(line) if offset_ns is not None else None
    if wall is None or offset_ns is None:
        return None
    try:
        return int(datetime.fromisoformat(wall[1]).timestamp() * NS) - offset_ns
    except ValueError:
        return None


def _wall_offset(history: History) -> int | None:
    """Return what wall time is ahead of the monotonic clock, as the first record has both."""
    first = history.records[0] if history.records else None
    try:
        return (
            int(datetime.fromisoformat(first.wall).timestamp() * NS) - first.t_ns if first else None
        )
    except ValueError:
        return None
