"""After the run nothing of it is left on the machine."""

from chaos.history import History
from chaos.model import Verdict
from chaos.ports import Invariant

COUNTED = ("containers", "networks", "volumes", "toxics", "paused", "chains")


def judge(history: History) -> tuple[Verdict, str]:
    """Read the audit that follows the removal of the stack."""
    audit = {"chains": [], **history.one("audit")}
    if audit.get("kept"):
        return Verdict.UNKNOWN, "the stack was kept on request; `python -m chaos heal` removes it"
    left = {name: found for name in COUNTED if (found := audit[name])}
    if left:
        told = "; ".join(f"{name}: {found}" for name, found in left.items())
        return Verdict.VIOLATED, f"left behind: {told}"
    told = ", ".join(COUNTED[:-2])
    return Verdict.VALID, f"no {told}, paused containers or packet rules of this run"


INVARIANT = Invariant("machine_clean", judge)
