"""After a power loss all that had been answered is there, and nothing that is half there counts."""

from chaos.history import History, integer, items, mapping
from chaos.model import Verdict
from chaos.ports import Invariant
from chaos.words import counted


def judge(history: History) -> tuple[Verdict, str]:
    """Read what the judges of the rebuilt volumes found."""
    evidence = [
        mapping(receipt.get("evidence"))
        for receipt in history.of("fault_receipt")
        if "power_lost" in mapping(receipt.get("evidence"))
    ]
    for found in evidence:
        for bad in items(found.get("violations")):
            wrong = mapping(bad).get("violations")
            return Verdict.VIOLATED, f"{found.get('what')}: {wrong}, lost: {mapping(bad)['lost']}"
    states = sum(integer(found.get("states_judged")) or 0 for found in evidence)
    if not states:
        return Verdict.UNKNOWN, "no volume was judged after a power loss"
    images = sum(len(items(found.get("power_lost"))) for found in evidence)
    told = f"{counted(states, 'state')} judged, {counted(images, 'disk image')} mounted"
    return Verdict.VALID, told


INVARIANT = Invariant("survives_power_loss", judge)
