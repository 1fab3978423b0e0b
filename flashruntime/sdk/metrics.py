"""Which of two runs' final metrics must be equal, and whether they are."""

import json
import re
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from flashruntime.checkpoint.difference import Difference, compare_values
from flashruntime.launch.files import open_regular
from flashruntime.launch.progress import MAX_METRICS_BYTES
from flashruntime.sdk.run import Run
from flashruntime.sdk.workload import METRICS_NAME

# fmt: off
VOLATILE_WORDS = frozenset({
    "time", "times", "timestamp", "date", "elapsed", "duration", "wall", "clock", "eta",
    "seconds", "second", "secs", "sec", "s", "ms", "us", "ns", "minutes", "hours",
    "speed", "throughput", "latency",
    "attempt", "attempts", "restart", "restarts", "restarted", "resume", "resumed", "executed",
    "pid", "host", "hostname", "node",
})
# fmt: on
_WORDS = re.compile(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])|[0-9]+")


@dataclass(frozen=True, slots=True)
class MetricsComparison:
    """The differences, the names that were compared, and those that were not."""

    differences: list[Difference]
    compared: list[str]
    ignored: list[str]


def is_volatile(name: str) -> bool:
    """Return whether a metric tells of time, machine or attempt: a word of its name says so."""
    return any(word.lower() in VOLATILE_WORDS for word in _WORDS.findall(name))


def final_metrics(run: Run) -> dict[str, Any]:
    """Return what the run's successful attempt wrote to metrics.json; nothing if it wrote none."""
    for artifact in run.artifacts:
        if artifact.accepted and artifact.path == METRICS_NAME:
            return _read(run.output_dir / artifact.file)
    return {}


def compare_metrics(
    first: dict[str, Any], second: dict[str, Any], ignore: Collection[str]
) -> MetricsComparison:
    """Compare all metrics but the volatile ones and those named in `ignore`."""
    names = sorted(first.keys() | second.keys())
    ignored = [name for name in names if name in ignore or is_volatile(name)]
    compared = [name for name in names if name not in ignored]
    here, there = (
        {name: values[name] for name in compared if name in values} for values in (first, second)
    )
    return MetricsComparison(compare_values("metric", here, there), compared, ignored)


def _read(path: Path) -> dict[str, Any]:
    try:
        with open_regular(path) as file:
            content = file.read(MAX_METRICS_BYTES + 1)
        value = json.loads(content)
    except (OSError, ValueError, RecursionError):
        return {}
    return value if isinstance(value, dict) else {"": value}
