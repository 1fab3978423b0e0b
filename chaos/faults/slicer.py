"""Answers arrive in slices with pauses between them, through Toxiproxy."""

from dataclasses import dataclass

from chaos.canaries import Felt, OnPath
from chaos.history import integer
from chaos.model import Action, JsonMap
from chaos.ports import Toxic
from chaos.schedule import Draw
from chaos.storm import Template

AT_LEAST = 0.5
"""Nobody waits for the pause after the last slice, and a short answer has few of them."""


@dataclass(frozen=True, slots=True)
class Slicer(OnPath):
    """Parameters `slice_bytes`, `pause_us` (microseconds), `hold_ms`; on the downstream half.

    Landed where a canary's answer came in more pieces than before, and took the pauses' time.
    """

    kind: str = "slicer"

    def toxics(self, action: Action) -> tuple[Toxic, ...]:
        """Return the slicer."""
        slice_bytes, pause_us = _sizes(action.params)
        attributes = {"average_size": slice_bytes, "size_variation": 0, "delay": pause_us}
        return (Toxic(action.fault_id, "slicer", "downstream", attributes),)

    def is_felt(self, felt: Felt, params: JsonMap) -> bool:
        """Whether there were slices and pauses."""
        slice_bytes, pause_us = _sizes(params)
        pauses = felt.during.received_bytes // slice_bytes
        in_pieces = felt.during.reads > max(felt.before.reads, felt.after.reads)
        least_s = AT_LEAST * pauses * pause_us / 1e6
        return felt.only("ok") and in_pieces and pauses > 0 and felt.is_later(least_s)


def _sizes(params: JsonMap) -> tuple[int, int]:
    return integer(params["slice_bytes"]) or 1, integer(params["pause_us"]) or 0


FAULT = Slicer()


def _drawn(draw: Draw, fault_id: str) -> JsonMap:
    return {
        "slice_bytes": 20,
        "pause_us": draw.integer(fault_id, "pause_us", 20_000, 50_000),
        "hold_ms": draw.integer(fault_id, "hold_ms", 500, 1500),
    }


TEMPLATE = Template(_drawn)
