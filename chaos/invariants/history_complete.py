"""Nothing is missing from the history: what was not heard must not pass as not having happened."""

from chaos.history import History, mapping
from chaos.model import Verdict
from chaos.ports import Invariant
from chaos.words import counted


def judge(history: History) -> tuple[Verdict, str]:
    """Look for the last event of each job that ended, and for a last look that failed.

    Events come in order, so that whoever has the last one of a job has them all.
    """
    roles = history.role_of()
    if not roles:
        return Verdict.UNKNOWN, "no job was submitted"
    ended = [
        role for role in roles.values() if mapping(history.final(role)["job"])["state"] in ENDS
    ]
    if cut := [role for role in ended if not history.heard_out(history.job_id(role))]:
        return Verdict.UNKNOWN, f"the last events are missing of: {', '.join(cut)}"
    if silent := history.one("collected")["silent"]:
        return Verdict.UNKNOWN, f"the last look at it got no answer: {silent}"
    events = counted(len(history.events()), "event")
    return Verdict.VALID, f"{events}, to the end of {counted(len(ended), 'job')}"


ENDS = {"SUCCEEDED", "FAILED", "CANCELLED"}

INVARIANT = Invariant("history_complete", judge)
