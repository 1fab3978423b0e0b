"""Delay on a worker's own path to the coordinator, through Toxiproxy, with or without jitter."""

from dataclasses import dataclass

from chaos.canaries import SLACK, Felt, OnPath, streams_of
from chaos.history import integer
from chaos.model import Action, JsonMap
from chaos.ports import Toxic
from chaos.schedule import Draw
from chaos.storm import Template

DOWNSTREAM = "downstream"


@dataclass(frozen=True, slots=True)
class Latency(OnPath):
    """Parameters `latency_ms`, `jitter_ms`, `stream` (upstream, downstream or both), `hold_ms`.

    Landed where a canary is later by the least delay that they allow; on both halves it pays twice.
    """

    kind: str = "latency"

    def toxics(self, action: Action) -> tuple[Toxic, ...]:
        """Return a delay on each half of the path that is named."""
        latency_ms, jitter_ms = _delay_ms(action.params)
        attributes = {"latency": latency_ms, "jitter": jitter_ms}
        return tuple(
            Toxic(f"{action.fault_id}-{stream}", "latency", stream, attributes)
            for stream in streams_of(action.params, DOWNSTREAM)
        )

    def is_felt(self, felt: Felt, params: JsonMap) -> bool:
        """Whether the canary was later than those around it."""
        latency_ms, jitter_ms = _delay_ms(params)
        times = len(streams_of(params, DOWNSTREAM))
        least_s = SLACK * times * (latency_ms - jitter_ms) / 1e3
        return felt.only("ok") and felt.is_later(least_s)


def _delay_ms(params: JsonMap) -> tuple[int, int]:
    return integer(params["latency_ms"]) or 0, integer(params.get("jitter_ms")) or 0


FAULT = Latency()


def _drawn(draw: Draw, fault_id: str) -> JsonMap:
    return {
        "latency_ms": draw.integer(fault_id, "latency_ms", 200, 400),
        "stream": draw.choice(fault_id, "stream", ("upstream", "downstream", "both")),
        "hold_ms": draw.integer(fault_id, "hold_ms", 500, 1500),
    }


TEMPLATE = Template(_drawn)
