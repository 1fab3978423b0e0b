"""A submission that is repeated because its answer was lost makes no second job."""

from chaos.history import History, mapping
from chaos.model import Verdict
from chaos.ports import Invariant
from chaos.words import counted


def judge(history: History) -> tuple[Verdict, str]:
    """Compare the jobs that the coordinator had after such a loss with those submitted."""
    lists = [
        found
        for receipt in history.of("fault_receipt")
        if receipt.get("kind") == "lost_answer"
        and mapping(receipt.get("evidence")).get("call") == "submit"
        and isinstance(found := mapping(receipt.get("evidence")).get("accepted"), list)
    ]
    if not lists:
        return Verdict.UNKNOWN, "no answer to a submission was lost"
    submitted = {str(job["job_id"]) for job in history.of("job_submitted")}
    accepted = {str(job_id) for found in lists for job_id in found}
    if twice := sorted(accepted - submitted):
        return Verdict.VIOLATED, f"nobody knows of {', '.join(twice)}, which the coordinator has"
    return Verdict.VALID, f"{counted(len(accepted), 'job')} there, each of them submitted once"


INVARIANT = Invariant("submitted_once", judge)
