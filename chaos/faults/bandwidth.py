"""A slow link: a worker's own path carries only so many kilobytes a second, through Toxiproxy."""

from dataclasses import dataclass

from chaos.canaries import SLACK, STREAMS, Felt, OnPath, streams_of
from chaos.history import integer
from chaos.model import Action, JsonMap
from chaos.ports import Toxic
from chaos.schedule import Draw
from chaos.storm import Template

UPSTREAM = STREAMS[0]
CANARY_MS = 250
MOST_PAD_BYTES = 48_000


@dataclass(frozen=True, slots=True)
class Bandwidth(OnPath):
    """Parameters `kb_per_s` (thousands of bytes), `stream`, `hold_ms`, `until`.

    Landed where a canary takes as long as its bytes need at that rate; upstream it is made long
    enough for a quarter of a second, at most 48,000 bytes.
    """

    kind: str = "bandwidth"

    def toxics(self, action: Action) -> tuple[Toxic, ...]:
        """Return a limit for each half of the path that is named."""
        rate = {"rate": _rate(action.params)}
        return tuple(
            Toxic(f"{action.fault_id}-{stream}", "bandwidth", stream, rate)
            for stream in streams_of(action.params, UPSTREAM)
        )

    def pad_bytes(self, params: JsonMap) -> int:
        """Return the length that makes the canary slow."""
        slow = UPSTREAM in streams_of(params, UPSTREAM)
        return min(MOST_PAD_BYTES, _rate(params) * CANARY_MS) if slow else 0

    def is_felt(self, felt: Felt, params: JsonMap) -> bool:
        """Whether the canary took the time that its bytes need."""
        sizes = dict(
            zip(STREAMS, (felt.during.sent_bytes, felt.during.received_bytes), strict=True)
        )
        limited = sum(sizes[stream] for stream in streams_of(params, UPSTREAM))
        return felt.only("ok") and felt.is_later(SLACK * limited / (_rate(params) * 1e3))


def _rate(params: JsonMap) -> int:
    return integer(params["kb_per_s"]) or 1


FAULT = Bandwidth()


def _drawn(draw: Draw, fault_id: str) -> JsonMap:
    return {
        "kb_per_s": draw.integer(fault_id, "kb_per_s", 50, 190),
        "hold_ms": draw.integer(fault_id, "hold_ms", 500, 1500),
    }


TEMPLATE = Template(_drawn)
