"""No numbered line is missing from a container's log: what was dropped could have decided."""

from chaos.history import History, integer, items, mapping
from chaos.model import Verdict
from chaos.ports import Invariant
from chaos.words import counted


def judge(history: History) -> tuple[Verdict, str]:
    """Look for gaps in the numbers that each process gives its lines.

    The last lines of a process that was killed may be missing all the same: nothing follows them.
    """
    logs = {name: mapping(found) for name, found in history.one("logs").items()}
    for name, found in logs.items():
        for gap in items(found.get("gaps")):
            return (
                Verdict.UNKNOWN,
                f"{name}, line {gap.get('line')}: number {gap.get('found')} follows "
                f"{gap.get('after')}",
            )
    lines = sum(integer(found.get("numbered")) or 0 for found in logs.values())
    if not lines:
        return Verdict.UNKNOWN, "no log has a numbered line"
    processes = sum(integer(found.get("processes")) or 0 for found in logs.values())
    told = f"{counted(lines, 'numbered line')} of {counted(processes, 'process')}"
    return Verdict.VALID, f"{told.replace('processs', 'processes')}, none missing"


INVARIANT = Invariant("logs_complete", judge)
