"""What must hold of a volume after a power loss: the whole of what was answered, nothing torn."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from chaos.model import JsonMap
from chaos.powerloss.states import CrashState

WHOLE, ABSENT = "whole", "absent"


@dataclass(frozen=True, slots=True)
class Judged:
    """What a judge saw on one volume: whether it could be used again, and each item's worth."""

    usable: bool
    items: Mapping[str, str]
    detail: str


def violations(state: CrashState, judged: Judged) -> tuple[str, ...]:
    """Return what is wrong: not usable, an answered item not whole, another one torn."""
    found = [] if judged.usable else [f"the volume cannot be used again: {judged.detail}"]
    for item in state.answered:
        seen = judged.items.get(item, "not seen")
        if seen != WHOLE:
            found.append(f"{item} had been answered and is {seen}")
    for item, seen in judged.items.items():
        if item not in state.answered and seen not in {WHOLE, ABSENT}:
            found.append(f"{item} is {seen}")
    return tuple(found)


def told(state: CrashState, judged: Judged, found: Sequence[str]) -> JsonMap:
    """Return one state and its judgement as JSON."""
    return {
        "image": state.digest,
        "after": state.after,
        "how": state.how,
        "lost": [*state.lost],
        "answered": [*state.answered],
        "items": dict(judged.items),
        "violations": [*found],
    }
