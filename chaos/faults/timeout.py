"""A worker's own path swallows what goes one way, or both, for a while, then opens."""

from dataclasses import dataclass
from typing import ClassVar

from chaos.canaries import BOTH, Felt, OnPath, streams_of
from chaos.model import Action, JsonMap
from chaos.ports import Toxic
from chaos.schedule import Draw
from chaos.storm import Template


@dataclass(frozen=True, slots=True)
class Timeout(OnPath):
    """Parameters `stream` (upstream, downstream or both), `hold_ms`.

    Landed where canaries at the beginning and at the end got no answer in time. A server that
    closes the connection after its answer ends one that swallows answers: then it is missed.
    """

    kind: str = "timeout"
    patience_s: ClassVar[float] = 0.5

    def toxics(self, action: Action) -> tuple[Toxic, ...]:
        """Return a hole on each half of the path that is named."""
        return tuple(
            Toxic(f"{action.fault_id}-{stream}", "timeout", stream, {"timeout": 0})
            for stream in streams_of(action.params, BOTH)
        )

    def is_felt(self, felt: Felt, params: JsonMap) -> bool:
        """Whether nothing came back."""
        del params
        return felt.only("timeout")


FAULT = Timeout()


def _drawn(draw: Draw, fault_id: str) -> JsonMap:
    return {
        "stream": draw.choice(fault_id, "stream", ("upstream", "downstream", "both")),
        "hold_ms": draw.integer(fault_id, "hold_ms", 500, 4500),
    }


TEMPLATE = Template(_drawn)
