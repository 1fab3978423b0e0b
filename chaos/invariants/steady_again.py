"""Once every fault is undone, the system is back in its steady state."""

from chaos.history import History
from chaos.model import Verdict
from chaos.ports import Invariant


def judge(history: History) -> tuple[Verdict, str]:
    """Read the check that follows the undoing of the faults."""
    checked = [healed for healed in history.of("healed") if healed.get("checked")]
    if not checked:
        return Verdict.UNKNOWN, "the steady state was not checked after healing"
    if failures := checked[-1]["failures"]:
        return Verdict.UNKNOWN, f"an undo failed: {failures}"
    if unsteady := checked[-1]["unsteady"]:
        return Verdict.VIOLATED, f"not steady again: {unsteady}"
    return Verdict.VALID, "ready, every worker connected, no toxic, every listener answers"


INVARIANT = Invariant("steady_again", judge)
