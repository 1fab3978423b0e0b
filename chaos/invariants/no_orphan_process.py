"""Once its job has ended, no process of it is left in a worker."""

from chaos.history import History, HistoryError, mapping
from chaos.model import Verdict
from chaos.ports import Invariant
from chaos.words import counted

ENDED = {"SUCCEEDED", "FAILED", "CANCELLED"}


def judge(history: History) -> tuple[Verdict, str]:
    """Look for what tells a job's processes among the command lines seen at the end."""
    found = mapping(history.one("census").get("processes"))
    if not found:
        return Verdict.UNKNOWN, "no worker could be looked into"
    marks = _marks(history)
    left = [
        f"{worker}: {command}"
        for worker, commands in found.items()
        for command in map(str, commands if isinstance(commands, list) else [])
        if any(mark in command for mark in marks)
    ]
    states = {role: _state(history, role) for role in history.role_of().values()}
    if left and (running := [role for role, state in states.items() if state not in ENDED]):
        return Verdict.UNKNOWN, f"{', '.join(running)} had not ended: {'; '.join(left)}"
    if left:
        return Verdict.VIOLATED, f"still running: {'; '.join(left)}"
    processes = sum(len(each) for each in found.values() if isinstance(each, list))
    told = f"{counted(processes, 'process')} in {counted(len(found), 'worker')}"
    return Verdict.VALID, f"{told.replace('processs', 'processes')}, none of a job"


def _state(history: History, role: str) -> str:
    return str(mapping(history.final(role).get("job")).get("state"))


def _marks(history: History) -> set[str]:
    """Return what tells a job's processes: names of its files, of a job without any its command."""
    marks: set[str] = set()
    for job in map(mapping, mapping(history.one("plan").get("jobs")).values()):
        command = job.get("command")
        words = [" ".join(map(str, command))] if isinstance(command, list) else []
        marks |= set(mapping(job.get("files")) or words)
    if not marks:
        raise HistoryError("the plan does not say by what a job's processes are known")
    return marks


INVARIANT = Invariant("no_orphan_process", judge)
