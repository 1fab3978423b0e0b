"""No sample is seen twice or never: not by one attempt, and not where two of them meet."""

import re

from chaos.history import Event, History, HistoryError, integer, mapping, text
from chaos.model import JsonValue, Verdict
from chaos.ports import Invariant
from chaos.words import counted

CHAIN = ("sample_chain", "samples_seen")
LEDGER = re.compile(r"sample \d+ was seen twice|some sample was not seen exactly once")
"""How a payload ends itself when its own count of the samples of an epoch is wrong."""


def judge(history: History) -> tuple[Verdict, str]:
    """Compare the hash chain over all samples with the undisturbed job's, and count the steps."""
    for event in history.events():
        if event.type == "TASK_ATTEMPT_FAILED" and (said := _ledger(event)) is not None:
            return Verdict.VIOLATED, f"{event.lease_id} ended itself: {said}"
    likes = history.likes()
    if not likes:
        return Verdict.VALID, "not applicable: no job of the plan has an undisturbed twin"
    compared = 0
    for role, like in likes.items():
        pairs = zip(history.task_ends(role), history.task_ends(like), strict=True)
        for index, (found, clean) in enumerate(pairs):
            problem = _problem(mapping(found.get("metrics")), mapping(clean.get("metrics")))
            if problem is not None:
                return Verdict.VIOLATED, f"{role}, task {index}: {problem}"
            compared += 1
    return Verdict.VALID, f"{counted(compared, 'task')}: each sample once, in the same order"


def _ledger(failure: Event) -> str | None:
    evidence = mapping(failure.data.get("evidence"))
    said = " ".join(text(evidence.get(name)) or "" for name in ("message", "log_tail"))
    found = LEDGER.search(said)
    return found[0] if found else None


def _problem(found: dict[str, JsonValue], clean: dict[str, JsonValue]) -> str | None:
    for name in CHAIN:
        if found.get(name) is None or clean.get(name) is None:
            raise HistoryError(f"a job reports no {name}")
        if found[name] != clean[name]:
            return f"{name} is {found[name]}, undisturbed it is {clean[name]}"
    steps, executed = integer(found.get("steps")), integer(found.get("executed_steps_this_attempt"))
    resumed = integer(found.get("resumed_from")) or 0
    if steps is not None and executed is not None and resumed + executed != steps:
        return f"{executed} steps after step {resumed} do not end at step {steps}"
    return None


INVARIANT = Invariant("samples_once", judge)
