"""No process of a job outlives its attempt: not a child, not an agent that was killed."""

from pathlib import PurePosixPath

from chaos.history import History, items, mapping
from chaos.model import Verdict
from chaos.ports import Invariant
from chaos.words import counted


def judge(history: History) -> tuple[Verdict, str]:
    """Look for a job's own file in the command lines of the workers after all jobs had ended.

    What a killed agent had started must be gone too: the fault's receipt tells what was left.
    """
    for receipt in history.of("fault_receipt"):
        left = mapping(receipt.get("evidence")).get("left")
        if receipt.get("kind") == "kill_agent" and left:
            return Verdict.VIOLATED, f"{receipt['fault_id']}: its agent is dead, yet {left} ran"
    listed = history.of("processes")
    if not listed:
        return Verdict.UNKNOWN, "nobody looked at the processes after the jobs had ended"
    ends = [mapping(history.final(role)["job"]).get("state") for role in history.role_of().values()]
    if not all(state in {"SUCCEEDED", "FAILED", "CANCELLED"} for state in ends):
        return Verdict.UNKNOWN, "a job had not ended when the processes were listed"
    files = _files(history)
    containers = items(listed[-1].get("containers"))
    if not containers:
        return Verdict.UNKNOWN, "no worker was there to be looked at"
    for each in containers:
        found = each.get("commands")
        commands = [str(command) for command in found] if isinstance(found, list) else []
        if orphans := [command for command in commands if _names(command) & files]:
            told = f"{each.get('service')} still runs {len(orphans)} of a job that has ended"
            return Verdict.VIOLATED, f"{told}: {orphans[0]}"
    return Verdict.VALID, f"{counted(len(containers), 'worker')}, and no process of any job left"


def _files(history: History) -> set[str]:
    """Return the names of the files that the jobs' commands name."""
    jobs = mapping(history.one("plan")["jobs"])
    return {name for job in jobs.values() for name in mapping(mapping(job).get("files"))}


def _names(command: str) -> set[str]:
    return {PurePosixPath(word).name for word in command.split()}


INVARIANT = Invariant("no_orphan_process", judge)
