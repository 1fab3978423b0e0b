"""A damaged checkpoint is passed over with a recorded reason, and never loaded."""

import json

from chaos.history import History, integer, items, mapping, text
from chaos.model import JsonValue, Verdict
from chaos.ports import Invariant


def judge(history: History) -> tuple[Verdict, str]:
    """Compare what faults damaged with what the attempt that took over says of its resume."""
    damaged = {
        integer(entry.get("step")): text(entry.get("manifest_id"))
        for receipt in history.of("fault_receipt")
        for entry in items(mapping(receipt.get("evidence")).get("corrupted"))
    }
    if not damaged:
        return Verdict.UNKNOWN, "no checkpoint was damaged"
    role = _damaged_role(history)
    said = _said(text(history.final(role).get("logs")) or "")
    resumed = {text(line.get("manifest_id")) for line in said if line.get("event") == "resumed"}
    if loaded := resumed & set(damaged.values()):
        return Verdict.VIOLATED, f"{', '.join(map(str, loaded))} was damaged and has been loaded"
    if not resumed:
        return Verdict.UNKNOWN, "the log does not reach back to a resume"
    reasons = {
        integer(line.get("step")): _reason(line)
        for line in said
        if line.get("event") == "checkpoint_rejected"
    }
    if silent := [step for step in damaged if not reasons.get(step)]:
        return Verdict.VIOLATED, f"no reason is recorded for passing over step {silent[0]}"
    steps = [str(line.get("step")) for line in said if line.get("event") == "resumed"]
    refused = [f"step {step} refused ({reasons[step]})" for step in damaged]
    return Verdict.VALID, "; ".join([*refused, f"resumed from step {', '.join(steps)}"])


def _damaged_role(history: History) -> str:
    """Return the job whose checkpoint was damaged; one at most is in a run."""
    for receipt in history.of("fault_receipt"):
        evidence = mapping(receipt.get("evidence"))
        if items(evidence.get("corrupted")):
            lane = history.lanes.get(str(evidence.get("task_id")), "main")
            return lane.partition("/")[0]
    return "main"


def _reason(line: dict[str, JsonValue]) -> str | None:
    reason = text(line.get("reason"))
    if reason is not None and "does not hash" in reason and line.get("part"):
        return f"hash mismatch in {line['part']}"
    return reason


def _said(log: str) -> list[dict[str, JsonValue]]:
    """Return the lines of a log that are JSON objects."""
    said: list[dict[str, JsonValue]] = []
    for line in log.splitlines():
        try:
            said.append(mapping(json.loads(line)))
        except ValueError:
            continue
    return said


INVARIANT = Invariant("rejection_recorded", judge)
