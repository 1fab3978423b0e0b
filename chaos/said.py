"""What containers said in their logs that a judge needs: answers that workers got, starts."""

import json
from collections.abc import Iterator
from pathlib import Path

from chaos.history import integer, mapping, text
from chaos.model import JsonValue

ANSWERS = {
    "lease_claimed",
    "attempt_started",
    "attempt_accepted",
    "attempt_refused",
    "attempt_failed",
    "attempt_discarded",
}
STARTS = {"worker_started", "coordinator_ready"}
KEPT = ("event", "mono_ns", "lease_id", "task_id", "attempt", "status", "duration_ms", "route")
REASON = 160


def said(logs: Path) -> dict[str, JsonValue]:
    """Return, of each log, the answers, refusals and starts in it, in order."""
    return {path.stem: list(_lines(path)) for path in sorted(logs.glob("*.log"))}


def _lines(path: Path) -> Iterator[JsonValue]:
    with path.open(encoding="utf-8", errors="replace") as stream:
        for line in stream:
            try:
                told = mapping(json.loads(line))
            except ValueError:
                continue
            if _matters(told):
                kept: dict[str, JsonValue] = {name: told[name] for name in KEPT if name in told}
                if (reason := text(told.get("reason"))) is not None:
                    kept["reason"] = reason[:REASON]
                yield kept


def _matters(told: dict[str, JsonValue]) -> bool:
    if integer(told.get("mono_ns")) is None:
        return False
    if told.get("event") in ANSWERS | STARTS:
        return True
    return told.get("event") == "request" and text(told.get("lease_id")) is not None
