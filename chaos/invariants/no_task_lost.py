"""Every job that was submitted has ended, and succeeded."""

from chaos.history import History, mapping
from chaos.model import Verdict
from chaos.ports import Invariant
from chaos.words import counted


def judge(history: History) -> tuple[Verdict, str]:
    """Read the final state of each job."""
    roles = list(history.role_of().values())
    if not roles:
        return Verdict.UNKNOWN, "no job was submitted"
    jobs = {role: mapping(history.final(role)["job"]) for role in roles}
    if lost := [role for role, job in jobs.items() if job.get("state") != "SUCCEEDED"]:
        told = "; ".join(
            f"{role} is {jobs[role].get('state')} ({jobs[role].get('reason') or 'no reason given'})"
            for role in lost
        )
        return Verdict.VIOLATED, told
    return Verdict.VALID, f"{counted(len(jobs), 'job')} submitted, none lost: each succeeded"


INVARIANT = Invariant("no_task_lost", judge)
