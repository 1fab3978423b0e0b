"""A coordinator whose volume takes nothing says so, with a time to try again, and then goes on."""

from chaos.history import History, items, mapping
from chaos.model import JsonValue, Verdict
from chaos.ports import Invariant
from chaos.words import counted

TOLD = {503, 507}


def judge(history: History) -> tuple[Verdict, str]:
    """Read the answers to the canary uploads of each fault that closed a volume.

    One that was taken while there was no room may have found some; once there was room again, one
    must be taken.
    """
    asked = refused = 0
    for receipt in history.of("fault_receipt"):
        evidence = mapping(receipt.get("evidence"))
        if "canary_after" not in evidence:
            continue
        answers = items(evidence.get("canary_during"))
        for answer in answers:
            if (problem := _problem(answer)) is not None:
                return Verdict.VIOLATED, f"{receipt['fault_id']}: while it was full, {problem}"
        after = mapping(evidence["canary_after"])
        if after.get("refused") is not None:
            told = f"an upload got {after.get('refused')!r} once there was room"
            return Verdict.VIOLATED, f"{receipt['fault_id']}: {told}"
        asked += len(answers)
        refused += sum(answer.get("refused") is not None for answer in answers)
    if not refused:
        return Verdict.UNKNOWN, f"no upload was refused, of {counted(asked, 'canary')}"
    return (
        Verdict.VALID,
        f"{refused} of {counted(asked, 'upload')} refused with 503 or 507, the next one was taken",
    )


def _problem(answer: dict[str, JsonValue]) -> str | None:
    """Say what is wrong with an answer, None where nothing is."""
    if answer.get("refused") is None:
        return None
    if answer.get("status") not in TOLD:
        return f"an upload got {answer.get('status')}: {answer.get('refused')}"
    retry_after_s = answer.get("retry_after_s")
    if answer.get("status") == 503 and not (
        isinstance(retry_after_s, int | float) and retry_after_s > 0
    ):
        return "a 503 named no time to try again"
    return None


INVARIANT = Invariant("refuses_when_full", judge)
