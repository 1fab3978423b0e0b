"""A lost holder is noticed within its lease and two seconds."""

from chaos.figures import losses, untold
from chaos.history import History
from chaos.model import Verdict
from chaos.ports import Invariant
from chaos.words import within

SLACK_S = 2.0


def judge(history: History) -> tuple[Verdict, str]:
    """Measure from each fault that took a holder away until its task was claimable."""
    lost = losses(history)
    for loss in lost:
        bound_s = loss.lease_s + SLACK_S
        if loss.detected_s is None:
            return Verdict.UNKNOWN, f"{loss.fault_id}: no moment of detection in the history"
        if loss.detected_s > bound_s:
            return (
                Verdict.VIOLATED,
                f"{loss.fault_id}: noticed after {loss.detected_s:.2f} s, bound {bound_s:g} s",
            )
    if missing := untold(history):
        return Verdict.UNKNOWN, f"cannot be measured: {', '.join(missing)}"
    told = [f"{loss.fault_id}: noticed after {loss.detected_s:.2f} s" for loss in lost]
    return Verdict.VALID, within(told, [loss.lease_s + SLACK_S for loss in lost])


INVARIANT = Invariant("detection_bound", judge)
