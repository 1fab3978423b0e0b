"""A damaged artifact is told, with the job that it concerns, and never given out."""

from chaos.history import History, integer, items, mapping, text
from chaos.model import JsonValue, Verdict
from chaos.ports import Invariant
from chaos.words import counted

CORRUPT = "ARTIFACT_CORRUPT"


def judge(history: History) -> tuple[Verdict, str]:
    """Compare what faults damaged in the store with what was told of it, and with what was given.

    Damage that nobody had a reason to find (no `found_by`) is left out.
    """
    told, delays_s = 0, list[float]()
    for receipt in history.of("fault_receipt"):
        evidence = mapping(receipt.get("evidence"))
        if text(evidence.get("found_by")) is None:
            continue
        rotted = [file for file in items(evidence.get("rotted")) if file.get("key") is not None]
        if (wrong := _given_out(evidence, rotted)) is not None:
            return Verdict.VIOLATED, f"{receipt['fault_id']}: damaged bytes {wrong} given out"
        for file in rotted:
            delay_s = _found(history, evidence, file)
            if delay_s is None:
                named = f"{file['key']} was damaged ({evidence.get('mode')})"
                return Verdict.VIOLATED, f"{named}, and no event names it with its job and task"
            told, delays_s = told + 1, [*delays_s, delay_s]
    if not told:
        return Verdict.UNKNOWN, "no artifact was damaged that somebody had to find"
    words = f"{counted(told, 'damaged artifact')} told within {max(delays_s):.1f} s, none given out"
    return Verdict.VALID, words


def _given_out(evidence: dict[str, JsonValue], rotted: list[dict[str, JsonValue]]) -> str | None:
    """Return what a download of a damaged file hashed to, None where each was right or refused."""
    given = evidence.get("given_out")
    pairs = zip(given if isinstance(given, list) else [], rotted, strict=False)
    wrong = [got for got, file in pairs if got is not None and got != file.get("sha256")]
    return str(wrong[0]) if wrong else None


def _found(
    history: History, evidence: dict[str, JsonValue], file: dict[str, JsonValue]
) -> float | None:
    """Return how long after the damage it was told of this file, None where it was not."""
    at_ns = integer(evidence.get("at_ns")) or 0
    for event in history.events():
        named = (event.job_id, event.task_id) == (evidence.get("job_id"), evidence.get("task_id"))
        same = all(event.data.get(name) == file.get(name) for name in ("key", "sha256"))
        if event.type == CORRUPT and named and same and event.mono_ns >= at_ns:
            return (event.mono_ns - at_ns) / 1e9
    return None


INVARIANT = Invariant("rot_found", judge)
