"""Every fault of the plan landed: one that did not is no test, and the run proves nothing."""

from chaos.figures import late
from chaos.history import History, items
from chaos.model import Landed, Verdict
from chaos.ports import Invariant
from chaos.words import counted


def judge(history: History) -> tuple[Verdict, str]:
    """Read the receipt of each planned fault."""
    planned = [str(action["fault_id"]) for action in items(history.one("plan")["schedule"])]
    receipts = {str(receipt["fault_id"]): receipt for receipt in history.of("fault_receipt")}
    missed = late(history)
    for fault_id in planned:
        if fault_id in missed:
            return Verdict.UNKNOWN, f"{fault_id} missed: {missed[fault_id]}"
        receipt = receipts.get(fault_id)
        if receipt is None:
            return Verdict.UNKNOWN, f"{fault_id} has no receipt"
        if receipt["landed"] != Landed.LANDED:
            return Verdict.UNKNOWN, f"{fault_id} {receipt['landed']}: {receipt.get('evidence')}"
    return (
        Verdict.VALID,
        f"{counted(len(planned), 'fault')} landed with evidence",
    )


INVARIANT = Invariant("faults_landed", judge)
