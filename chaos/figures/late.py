"""Faults that came too late: whoever they were to take away from its task had just ended it."""

from collections.abc import Mapping

from chaos.history import History, integer, mapping, text

ACCEPTED = "TASK_COMMIT_ACCEPTED"


def late(history: History) -> Mapping[str, str]:
    """Return why, by fault, where a holder died and yet its own attempt brought the result.

    Between the look that a fault fires on and the death of its target a task may end; then nothing
    was lost, and the fault is no test.
    """
    accepted = {event.lease_id for event in history.events() if event.type == ACCEPTED}
    found = {}
    for receipt in history.of("fault_receipt"):
        lease_id = text(receipt.get("lost_lease_id"))
        died = integer(mapping(receipt.get("evidence")).get("exit_code")) is not None
        if died and lease_id is not None and lease_id in accepted:
            found[str(receipt["fault_id"])] = f"its target had just ended the task of {lease_id}"
    return found
