"""Some of a worker's packets are lost, both ways, in its own network namespace, for a while."""

import math
import time
from dataclasses import dataclass

from chaos.canaries import PATIENCE_S, container_of, is_ahead, json_of, path_of, wait_until, who
from chaos.history import integer, items
from chaos.model import JsonMap, JsonValue, Landed, Receipt
from chaos.ports import Canary, Flow, Rule, Scene
from chaos.schedule import Draw
from chaos.storm import Template

TIMES = 8
AROUND = 2
LATE_S = 0.15
"""TCP sends again what was lost after 200 ms at the earliest, a lost SYN after a second."""
SIGMAS = 4.0


@dataclass(frozen=True, slots=True)
class Loss:
    """Parameters `percent`, `hold_ms`, `until`.

    Landed where the kernel dropped the stated share of what came by, as far as chance goes, one of
    several canaries from the worker's own place failed or was late, and none before and after.
    """

    kind: str = "loss"

    def undo(self, scene: Scene) -> tuple[tuple[str, JsonMap], ...]:
        """Take the rules out of whatever container the service has then."""
        return (("clear_packets", {"service": container_of(scene.target()).service}),)

    def fire(self, scene: Scene) -> JsonMap:
        """Lose packets, hold, clear."""
        target, packets, name = scene.target(), scene.world.packets, scene.action.fault_id
        container, listener, share = container_of(target), path_of(target), _share(scene)

        def canaries(times: int, timeout_s: float) -> list[Canary]:
            return [*packets.canaries(container, listener, times, timeout_s)]

        before = canaries(AROUND, PATIENCE_S)
        on_ns = time.monotonic_ns()
        packets.drop(container, Rule(name, Flow.BOTH, share))
        during = canaries(TIMES, 1.0)
        met = wait_until(scene, target, on_ns)
        counted = packets.counted(container, name)
        packets.clear(container)
        return {
            **who(target),
            "on_ns": on_ns,
            "off_ns": time.monotonic_ns(),
            "met": met,
            "seen": counted.seen if counted else None,
            "dropped": counted.dropped if counted else None,
            "is_gone": packets.counted(container, name) is None,
            "before": _told(before),
            "during": _told(during),
            "after": _told(canaries(AROUND, PATIENCE_S)),
        }

    def receipt(self, scene: Scene, fired: JsonMap) -> Receipt:
        """Compare counters and canaries."""
        seen, dropped = integer(fired["seen"]) or 0, integer(fired["dropped"]) or 0
        around = [*items(fired["before"]), *items(fired["after"])]
        on_ns = integer(fired["on_ns"])
        if any(canary["outcome"] != "ok" for canary in around) or fired["is_gone"] is not True:
            return Receipt(Landed.INCONCLUSIVE, fired, took_effect_ns=on_ns)
        usual_s = max(float(str(canary["elapsed_s"])) for canary in around)
        hurt = [each for each in items(fired["during"]) if _is_hurt(each, usual_s)]
        bitten = bool(hurt) and dropped > 0 and _is_likely(seen, dropped, _share(scene))
        bitten = bitten and is_ahead(scene, fired)
        return Receipt(
            Landed.LANDED if bitten else Landed.MISSED,
            {**fired, "hurt": len(hurt)},
            took_effect_ns=on_ns,
        )


def _share(scene: Scene) -> float:
    return (integer(scene.action.params["percent"]) or 0) / 100


def _is_hurt(canary: JsonMap, usual_s: float) -> bool:
    return canary["outcome"] != "ok" or float(str(canary["elapsed_s"])) >= usual_s + LATE_S


def _is_likely(seen: int, dropped: int, share: float) -> bool:
    """Whether so many of so many are within four standard deviations of the share."""
    return abs(dropped - seen * share) <= SIGMAS * math.sqrt(seen * share * (1 - share)) + 1


def _told(canaries: list[Canary]) -> JsonValue:
    return [json_of(canary) for canary in canaries]


FAULT = Loss()


def _drawn(draw: Draw, fault_id: str) -> JsonMap:
    return {
        "percent": draw.integer(fault_id, "percent", 30, 40),
        "hold_ms": draw.integer(fault_id, "hold_ms", 1000, 2000),
    }


TEMPLATE = Template(_drawn)
