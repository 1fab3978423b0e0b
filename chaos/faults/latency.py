"""Delay on a worker's own path to the coordinator, through Toxiproxy."""

import time
from dataclasses import dataclass

from chaos.history import integer
from chaos.model import JsonMap, JsonValue, Landed, NoTarget, Receipt
from chaos.ports import Probe, Scene, Toxic

PROBE_TIMEOUT_S = 5.0
HOLD_MS = 500
SLACK = 0.8


@dataclass(frozen=True, slots=True)
class Latency:
    """Parameters `latency_ms`, `hold_ms`; landed where a canary request is later by that much.

    The delay is on the downstream half; canaries run on connections of their own through the
    same listener before, during and after it.
    """

    kind: str = "latency"

    def undo(self, scene: Scene) -> tuple[tuple[str, JsonMap], ...]:
        """Remove the toxic."""
        args: JsonMap = {"listener": _listener(scene), "names": [scene.action.fault_id]}
        return (("remove_toxics", args),)

    def fire(self, scene: Scene) -> JsonMap:
        """Delay, for a while."""
        network, listener, name = scene.world.network, _listener(scene), scene.action.fault_id
        latency_ms = integer(scene.action.params["latency_ms"]) or 0
        hold_ms = integer(scene.action.params.get("hold_ms")) or HOLD_MS
        before = network.probe(listener, PROBE_TIMEOUT_S)
        on_ns = time.monotonic_ns()
        network.add(listener, Toxic(name, "latency", "downstream", {"latency": latency_ms}))
        during = network.probe(listener, PROBE_TIMEOUT_S)
        scene.wait(lambda _: False, hold_ms / 1e3)
        network.remove(listener, name)
        off_ns = time.monotonic_ns()
        after = network.probe(listener, PROBE_TIMEOUT_S)
        return {
            "listener": listener,
            "latency_ms": latency_ms,
            "on_ns": on_ns,
            "off_ns": off_ns,
            "before": _json(before),
            "during": _json(during),
            "after": _json(after),
        }

    def receipt(self, scene: Scene, fired: JsonMap) -> Receipt:
        """Compare the canaries."""
        outcomes = {_field(fired, when, "outcome") for when in ("before", "during", "after")}
        before, during, after = (
            float(str(_field(fired, when, "elapsed_s"))) for when in ("before", "during", "after")
        )
        delay_s = SLACK * float(str(fired["latency_ms"])) / 1e3
        if outcomes != {"ok"}:
            return Receipt(Landed.INCONCLUSIVE, fired, took_effect_ns=integer(fired["on_ns"]))
        felt = during - before >= delay_s and during - after >= delay_s
        landed = Landed.LANDED if felt else Landed.MISSED
        return Receipt(landed, fired, took_effect_ns=integer(fired["on_ns"]))


def _listener(scene: Scene) -> str:
    listener = scene.target().listener
    if listener is None:
        raise NoTarget(f"{scene.action.target} has no path through Toxiproxy")
    return listener


def _json(probe: Probe) -> JsonValue:
    return {"outcome": probe.outcome, "elapsed_s": probe.elapsed_s}


def _field(fired: JsonMap, when: str, name: str) -> JsonValue:
    probe = fired[when]
    return probe[name] if isinstance(probe, dict) else None


FAULT = Latency()
