"""The ledger still says at the end what it said before, whatever restarts were between."""

from chaos.history import History, digest, items
from chaos.model import Verdict
from chaos.ports import Invariant
from chaos.words import counted


def judge(history: History) -> tuple[Verdict, str]:
    """Compare each event as it was first heard with what its number says when asked again."""
    heard: dict[str, str] = {}
    for event in history.of("event"):
        number, told = str(event["id"]), digest(event)
        if heard.setdefault(number, told) != told:
            return Verdict.VIOLATED, f"event {number} was told in two ways"
    if not heard:
        return Verdict.UNKNOWN, "no event was ever heard"
    again = history.one("events_again")["digests"]
    if not isinstance(again, dict):
        return Verdict.UNKNOWN, "what the events are in the end was not recorded"
    if gone := [number for number in heard if number not in again]:
        return Verdict.VIOLATED, f"event {min(gone, key=int)} was told once, and is not there now"
    if changed := [number for number in heard if again[number] != heard[number]]:
        return Verdict.VIOLATED, f"event {min(changed, key=int)} now says something else"
    told = f"{counted(len(heard), 'event')} unchanged when asked for again"
    starts = _starts(history)
    restarts = "no restart" if starts < 2 else counted(starts - 1, "restart")
    return Verdict.VALID, f"{told}, after {restarts} of the coordinator"


def _starts(history: History) -> int:
    """Return how often the coordinator says that it became ready."""
    lines = items(history.one("said").get("coordinator"))
    return sum(line.get("event") == "coordinator_ready" for line in lines)


INVARIANT = Invariant("coordinator_keeps", judge)
