"""What the logs of containers say: numbered JSON lines, and how many of them are missing.

A process numbers its lines from 1, so a lower number than the last begins another process.
"""

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

NS = 1_000_000_000


@dataclass(frozen=True, slots=True)
class Line:
    """One line with a number, from the log of a container."""

    container: str
    seq: int
    event: str
    mono_ns: int | None
    fields: dict[str, Any]


@dataclass(slots=True)
class Logs:
    """The lines of several logs; `lost` numbers are missing, `plain` lines have none."""

    lines: list[Line] = field(default_factory=list)
    lost: int = 0
    plain: int = 0
    processes: int = 0

    def told(self) -> str:
        """Return how complete they are, in words."""
        return (
            f"container logs: {len(self.lines)} numbered lines of {self.processes} processes, "
            f"{self.lost} lost by their numbers; the last lines of a killed process can be "
            "missing unseen"
        )

    def spans(self, begin: str, end: str) -> list[float]:
        """Return, for each lease with both in one log, the seconds from one event to the other.

        By CLOCK_MONOTONIC: a time of day may jump in between.
        """
        begun = {(line.container, line.fields.get("lease_id")): line for line in self.of(begin)}
        pairs = [
            (first.mono_ns, line.mono_ns)
            for line in self.of(end)
            if (lease_id := line.fields.get("lease_id")) is not None
            and (first := begun.get((line.container, lease_id))) is not None
        ]
        return [(b - a) / NS for a, b in pairs if a is not None and b is not None]

    def of(self, event: str) -> list[Line]:
        """Return the lines of an event."""
        return [line for line in self.lines if line.event == event]


def read(folder: Path) -> Logs:
    """Read every log of a directory."""
    logs = Logs()
    for path in sorted(folder.glob("*.log")):
        with path.open(encoding="utf-8", errors="replace") as stream:
            add(logs, path.stem, stream)
    return logs


def add(logs: Logs, container: str, lines: Iterable[str]) -> None:
    """Add the lines of one container to `logs`."""
    last = 0
    for text in lines:
        line = _parsed(container, text)
        if line is None:
            logs.plain += 1
            continue
        if last == 0 or line.seq <= last:
            logs.processes += 1
            last = 0
        logs.lost += line.seq - last - 1
        logs.lines.append(line)
        last = line.seq


def together(found: Sequence[Logs]) -> Logs:
    """Return several logs as one."""
    return Logs(
        lines=[line for logs in found for line in logs.lines],
        lost=sum(logs.lost for logs in found),
        plain=sum(logs.plain for logs in found),
        processes=sum(logs.processes for logs in found),
    )


def _parsed(container: str, text: str) -> Line | None:
    try:
        told = json.loads(text)
        seq, event, at = told["seq"], told["event"], datetime.fromisoformat(told["ts"])
    except (ValueError, KeyError, TypeError, RecursionError):
        return None
    if isinstance(seq, bool) or not isinstance(seq, int) or seq < 1 or at.tzinfo is None:
        return None
    mono_ns = told.get("mono_ns")
    return Line(container, seq, str(event), mono_ns if type(mono_ns) is int else None, told)
