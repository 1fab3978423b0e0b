"""After the run nothing of it is left on the machine."""

from chaos.history import History
from chaos.model import Verdict
from chaos.ports import Invariant

COUNTED = ("containers", "networks", "volumes", "toxics", "paused")


def judge(history: History) -> tuple[Verdict, str]:
    """Read the audit that follows the removal of the stack."""
    audit = history.one("audit")
    if audit.get("kept"):
        return Verdict.UNKNOWN, "the stack was kept on request; `python -m chaos heal` removes it"
    left = {name: found for name in COUNTED if (found := audit[name])}
    if left:
        told = "; ".join(f"{name}: {found}" for name, found in left.items())
        return Verdict.VIOLATED, f"left behind: {told}"
    return Verdict.VALID, f"no {', '.join(COUNTED[:-1])} or paused containers of this run"


INVARIANT = Invariant("machine_clean", judge)
