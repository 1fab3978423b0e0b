"""A damaged checkpoint is passed over with a recorded reason, and never loaded."""

import json

from chaos.history import History, integer, items, mapping, text
from chaos.model import JsonValue, Verdict
from chaos.ports import Invariant


def judge(history: History) -> tuple[Verdict, str]:
    """Compare what faults damaged with what the attempts that took over say of their resumes."""
    damaged: dict[str, dict[int | None, str | None]] = {}
    for receipt in history.of("fault_receipt"):
        evidence = mapping(receipt.get("evidence"))
        for entry in items(evidence.get("corrupted")):
            steps = damaged.setdefault(_role(history, evidence), {})
            steps[integer(entry.get("step"))] = text(entry.get("manifest_id"))
    if not damaged:
        return Verdict.UNKNOWN, "no checkpoint was damaged"
    found = [_of_job(history, role, steps) for role, steps in damaged.items()]
    worst = Verdict.worst([verdict for verdict, _ in found])
    return worst, "; ".join(told for verdict, told in found if verdict is worst)


def _of_job(
    history: History, role: str, damaged: dict[int | None, str | None]
) -> tuple[Verdict, str]:
    name = "" if role == "main" else f"{role}: "
    said = _said(text(history.final(role).get("logs")) or "")
    resumed = {text(line.get("manifest_id")) for line in said if line.get("event") == "resumed"}
    if loaded := resumed & set(damaged.values()):
        told = f"{name}{', '.join(map(str, loaded))} was damaged and has been loaded"
        return Verdict.VIOLATED, told
    if not resumed:
        return Verdict.UNKNOWN, f"{name}the log does not reach back to a resume"
    reasons = {
        integer(line.get("step")): _reason(line)
        for line in said
        if line.get("event") == "checkpoint_rejected"
    }
    if silent := [step for step in damaged if not reasons.get(step)]:
        told = f"{name}no reason is recorded for passing over step {silent[0]}"
        return Verdict.VIOLATED, told
    steps = [str(line.get("step")) for line in said if line.get("event") == "resumed"]
    refused = [f"step {step} refused ({reasons[step]})" for step in damaged]
    return Verdict.VALID, name + "; ".join([*refused, f"resumed from step {', '.join(steps)}"])


def _role(history: History, evidence: dict[str, JsonValue]) -> str:
    """Return the job whose checkpoint was damaged."""
    return history.lanes.get(str(evidence.get("task_id")), "main").partition("/")[0]


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
