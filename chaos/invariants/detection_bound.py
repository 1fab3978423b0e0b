"""A lost holder is noticed: a dead one when its session ends, another within its lease."""

from chaos.figures import losses, untold
from chaos.history import History
from chaos.model import Verdict
from chaos.ports import Invariant
from chaos.words import within

SESSION_SLACK_S, LEASE_SLACK_S = 1.0, 2.0
TOO_LATE = "deadline_passed"


def judge(history: History) -> tuple[Verdict, str]:
    """Measure from each fault that took a holder away until its task was claimable.

    A process that ended is noticed within the grace of its session and a second, and by its lease
    only where that ends before the grace; whatever else took a holder away, within the lease and 2.
    """
    lost = losses(history)
    bounds = [each.signal_s + (SESSION_SLACK_S if each.died else LEASE_SLACK_S) for each in lost]
    for loss, bound_s in zip(lost, bounds, strict=True):
        if loss.detected_s is None and (loss.heard_s or 0.0) > bound_s:
            never = f"not noticed within {loss.heard_s:.2f} s, bound {bound_s:g} s"
            return Verdict.VIOLATED, f"{loss.fault_id}: {never}"
        if loss.detected_s is None:
            return Verdict.UNKNOWN, f"{loss.fault_id}: no moment of detection in the history"
        if loss.detected_s > bound_s:
            late = f"noticed after {loss.detected_s:.2f} s, bound {bound_s:g} s"
            return Verdict.VIOLATED, f"{loss.fault_id}: {late}"
        is_late = loss.detected_s > loss.signal_s
        if loss.died and is_late and loss.noticed_by == TOO_LATE:
            deaf = "its process ended, yet only its lease told"
            return Verdict.VIOLATED, f"{loss.fault_id}: {deaf}"
    if missing := untold(history):
        return Verdict.UNKNOWN, f"cannot be measured: {', '.join(missing)}"
    told = [f"{loss.fault_id}: noticed after {loss.detected_s:.2f} s" for loss in lost]
    return Verdict.VALID, within(told, bounds)


INVARIANT = Invariant("detection_bound", judge)
