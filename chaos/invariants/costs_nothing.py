"""A fault that the runtime must bear costs no attempt: nobody loses a lease over it.

Such a fault says so in the plan, by its parameter `costs_nothing`.
"""

from chaos.history import Event, History, integer, items, mapping, text
from chaos.model import JsonMap, Landed, Verdict
from chaos.ports import Invariant
from chaos.words import counted

LOST = {"LEASE_EXPIRED", "TASK_REQUEUED", "TASK_ATTEMPT_FAILED"}


def judge(history: History) -> tuple[Verdict, str]:
    """Look for the end of each attempt that was live when such a fault took effect.

    A fault at a worker or in a job speaks of one attempt, one at the coordinator of all of them,
    but for those whose holders another fault took away.
    """
    lost = {text(receipt.get("lost_lease_id")) for receipt in history.of("fault_receipt")}
    borne = []
    for fault_id, receipt in _borne(history):
        own = text(mapping(receipt.get("evidence")).get("lease_id"))
        leases = {own} if own is not None else _live(history, integer(receipt["took_effect_ns"]))
        for event in history.events():
            if event.lease_id in leases - lost and event.type in LOST:
                told = f"{fault_id} cost {event.lease_id} its task: event {event.id}"
                return Verdict.VIOLATED, f"{told} is its {event.type}"
        borne.append(f"{fault_id} ({counted(len(leases - lost), 'attempt')})")
    if not borne:
        return Verdict.UNKNOWN, "no fault that landed is one that must cost nothing"
    return Verdict.VALID, f"{', '.join(borne)}: each attempt went on under its lease"


def _borne(history: History) -> list[tuple[str, JsonMap]]:
    """Return the faults that must cost nothing and that landed, with their receipts."""
    receipts = {str(receipt["fault_id"]): receipt for receipt in history.of("fault_receipt")}
    planned = [
        str(action["fault_id"])
        for action in items(history.one("plan")["schedule"])
        if mapping(action.get("params")).get("costs_nothing")
    ]
    found = [(name, receipts[name]) for name in planned if name in receipts]
    return [(name, each) for name, each in found if each.get("landed") == Landed.LANDED]


def _live(history: History, at_ns: int | None) -> set[str | None]:
    """Return the leases that were claimed before a moment and had not ended by then."""
    ended = {*LOST, "TASK_COMMIT_ACCEPTED"}
    before: list[Event] = [e for e in history.events() if at_ns is not None and e.mono_ns < at_ns]
    over = {event.lease_id for event in before if event.type in ended}
    return {event.lease_id for event in before if event.type == "LEASE_CLAIMED"} - over


INVARIANT = Invariant("costs_nothing", judge)
