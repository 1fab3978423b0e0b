"""After a lost holder the work goes on within a stated time."""

from chaos.figures import losses, untold
from chaos.history import History
from chaos.model import Verdict
from chaos.ports import Invariant
from chaos.words import within

RESTART_S = 30.0


def judge(history: History) -> tuple[Verdict, str]:
    """Measure from each loss until a later attempt's first step was seen.

    The bound is the grace of a session or the lease, for the detection, and RESTART_S for a
    process that starts, imports its framework and loads a checkpoint on a busy machine.
    """
    lost = losses(history)
    for loss in lost:
        bound_s = loss.signal_s + RESTART_S
        if loss.progressed_s is None:
            return Verdict.UNKNOWN, f"{loss.fault_id}: no step of a later attempt was seen"
        if loss.progressed_s > bound_s:
            return (
                Verdict.VIOLATED,
                f"{loss.fault_id}: went on after {loss.progressed_s:.2f} s, bound {bound_s:g} s",
            )
    if missing := untold(history):
        return Verdict.UNKNOWN, f"cannot be measured: {', '.join(missing)}"
    told = [f"{loss.fault_id}: went on after {loss.progressed_s:.2f} s" for loss in lost]
    return Verdict.VALID, within(told, [loss.signal_s + RESTART_S for loss in lost])


INVARIANT = Invariant("recovery_bound", judge)
