"""Watch an attempt's saves for an open write window: part bytes and no manifest yet.

Request: {"root": path, "attempt_id", "min_step": int, "timeout_s": float}. Answer: {"window":
{"step", "seen_ns"}}, or null after `timeout_s`.
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


def windows(folder: str, min_step: int) -> Iterator[int]:
    """Yield the steps whose write window is open now."""
    for staged in entries(folder):
        match = STEP.match(staged.name)
        if match is not None and int(match[1]) >= min_step and window(staged.path):
            yield int(match[1])


def answer(request: dict[str, Any]) -> dict[str, Any]:
    """Return the first window that is seen, or nothing at the deadline."""
    deadline = time.monotonic() + request["timeout_s"]
    folder = f"{request['root']}/.staging/{request['attempt_id']}"
    while time.monotonic() < deadline:
        for step in windows(folder, request["min_step"]):
            return {"window": {"step": step, "seen_ns": time.monotonic_ns()}}
        time.sleep(POLL_S)
    return {"window": None}
