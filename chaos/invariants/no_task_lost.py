"""Every job that was submitted has ended, and as it should: none is lost."""

from collections.abc import Mapping

from chaos.history import History, items, mapping
from chaos.model import JsonMap, Verdict
from chaos.ports import Invariant
from chaos.words import counted

ENDED = {"SUCCEEDED", "FAILED", "CANCELLED"}


def judge(history: History) -> tuple[Verdict, str]:
    """Read the final state of each job.

    One that had not ended when the run stopped waiting is lost where nobody worked any more.
    While a task still runs, nothing can be said: that one is late, and others may wait for it.
    """
    submitted = history.of("job_submitted")
    roles = [str(job["role"]) for job in submitted]
    if not roles:
        return Verdict.UNKNOWN, "no job was submitted"
    finals = {role: history.final(role) for role in roles}
    states = {role: str(_job(final).get("state")) for role, final in finals.items()}
    expected = {str(job["role"]): str(job.get("expected", "SUCCEEDED")) for job in submitted}
    late = [role for role in roles if states[role] not in ENDED]
    if wrong := [role for role in roles if states[role] != expected[role] and role not in late]:
        return Verdict.VIOLATED, _told(finals, wrong)
    if late and (running := [role for role in roles if _runs(finals[role])]):
        told = f"{_told(finals, late)}: not lost, a task of {', '.join(running)} still ran"
        return Verdict.UNKNOWN, f"{told} when the wait for the jobs was over"
    if late:
        return Verdict.VIOLATED, f"{_told(finals, late)}, and nobody worked on any task"
    if failing := [role for role, state in expected.items() if state != "SUCCEEDED"]:
        told = f"each succeeded but {', '.join(failing)}, which must not"
    else:
        told = "each succeeded"
    return Verdict.VALID, f"{counted(len(roles), 'job')} submitted, none lost: {told}"


def _job(final: JsonMap) -> JsonMap:
    return mapping(final.get("job"))


def _runs(final: JsonMap) -> bool:
    return any(task.get("state") == "LEASED" for task in items(final.get("tasks")))


def _told(finals: Mapping[str, JsonMap], roles: list[str]) -> str:
    jobs = {role: _job(finals[role]) for role in roles}
    return "; ".join(
        f"{role} is {job.get('state')} ({job.get('reason') or 'no reason given'})"
        for role, job in jobs.items()
    )


INVARIANT = Invariant("no_task_lost", judge)
