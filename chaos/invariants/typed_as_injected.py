"""Each failure is called what was injected, and the action for that class is what was done."""

from chaos.figures import cases
from chaos.history import History
from chaos.model import Verdict
from chaos.ports import Invariant
from chaos.words import counted


def judge(history: History) -> tuple[Verdict, str]:
    """Compare classes and actions in the coordinator's events with what the plan expects."""
    found = cases(history)
    if not found:
        return Verdict.UNKNOWN, "no fault that landed says what is expected of the runtime"
    wrong = [case for case in found if case.wrong]
    if wrong and not history.of("checkpoints"):
        return Verdict.UNKNOWN, "no checkpoint tree was recorded: who resumed is not known"
    if wrong:
        return Verdict.VIOLATED, "; ".join(f"{c.lane}: {', '.join(c.wrong)}" for c in wrong)
    told = "; ".join(f"{case.lane}: {', '.join(case.told)}" for case in found)
    return Verdict.VALID, f"{counted(len(found), 'task')} as expected: {told}"


INVARIANT = Invariant("typed_as_injected", judge)
