"""Every job that was submitted has ended, and as it should: none is lost."""

from chaos.history import History, mapping
from chaos.model import Verdict
from chaos.ports import Invariant
from chaos.words import counted


def judge(history: History) -> tuple[Verdict, str]:
    """Read the final state of each job."""
    submitted = history.of("job_submitted")
    roles = [str(job["role"]) for job in submitted]
    if not roles:
        return Verdict.UNKNOWN, "no job was submitted"
    jobs = {role: mapping(history.final(role)["job"]) for role in roles}
    expected = {str(job["role"]): job.get("expected", "SUCCEEDED") for job in submitted}
    if lost := [role for role, job in jobs.items() if job.get("state") != expected[role]]:
        told = "; ".join(
            f"{role} is {jobs[role].get('state')} ({jobs[role].get('reason') or 'no reason given'})"
            for role in lost
        )
        return Verdict.VIOLATED, told
    if failing := [role for role, state in expected.items() if state != "SUCCEEDED"]:
        told = f"each succeeded but {', '.join(failing)}, which must not"
    else:
        told = "each succeeded"
    return Verdict.VALID, f"{counted(len(jobs), 'job')} submitted, none lost: {told}"


INVARIANT = Invariant("no_task_lost", judge)
