"""Every connection of a worker is reset for a while: its requests may arrive, no answer does."""

from dataclasses import dataclass

from chaos.canaries import Felt, OnPath
from chaos.model import Action, JsonMap
from chaos.ports import Toxic
from chaos.schedule import Draw
from chaos.storm import Template


@dataclass(frozen=True, slots=True)
class ResetPeer(OnPath):
    """Parameter `hold_ms`; landed where canaries at the beginning and at the end met the RST."""

    kind: str = "reset_peer"

    def toxics(self, action: Action) -> tuple[Toxic, ...]:
        """Return the reset."""
        return (Toxic(action.fault_id, "reset_peer", "downstream", {"timeout": 0}),)

    def is_felt(self, felt: Felt, params: JsonMap) -> bool:
        """Whether the canaries were reset."""
        del params
        return felt.only("reset")


FAULT = ResetPeer()


def _drawn(draw: Draw, fault_id: str) -> JsonMap:
    return {"hold_ms": draw.integer(fault_id, "hold_ms", 500, 1500)}


TEMPLATE = Template(_drawn)
