"""Watch a task's checkpoint tree for an open write window: part bytes and no manifest yet.

Request: {"root": path, "min_step": int, "min_bytes": int, "timeout_s": float}. Answer: {"window":
{"seen_ns", "attempt_id", "step"}}, or null after `timeout_s`.
"""

import os
import re
import time
from collections.abc import Iterator
from typing import Any

STEP = re.compile(r"step-([0-9]{6,})")
POLL_S = 0.001


def entries(path: str) -> list[os.DirEntry[str]]:
    """Return the entries of a directory, or none where it is missing or vanishes."""
    try:
        with os.scandir(path) as found:
            return list(found)
    except OSError:
        return []


def window(directory: str) -> int:
    """Return the part bytes in a staged step without a manifest, else 0."""
    total = 0
    for entry in entries(directory):
        if entry.name == "manifest.json":
            return 0
        try:
            total += entry.stat().st_size
        except OSError:
            return 0
    return total


def windows(root: str, min_step: int, min_bytes: int) -> Iterator[dict[str, Any]]:
    """Yield the write windows that are open now."""
    for attempt in entries(os.path.join(root, ".staging")):  # noqa: PTH118 (polled every ms)
        for staged in entries(attempt.path):
            match = STEP.match(staged.name)
            if match is None or int(match[1]) < min_step:
                continue
            if window(staged.path) >= min_bytes:
                yield {"attempt_id": attempt.name, "step": int(match[1])}


def answer(request: dict[str, Any]) -> dict[str, Any]:
    """Return the first window that is seen, or nothing at the deadline."""
    deadline = time.monotonic() + request["timeout_s"]
    while time.monotonic() < deadline:
        for found in windows(request["root"], request["min_step"], request["min_bytes"]):
            return {"window": {"seen_ns": time.monotonic_ns(), **found}}
        time.sleep(POLL_S)
    return {"window": None}
