"""All packets of a worker are dropped one way, in its own network namespace, for a while."""

import time
from dataclasses import dataclass

from chaos.canaries import (
    PATIENCE_S,
    container_of,
    felt_of,
    json_of,
    path_of,
    receipt_of,
    wait_until,
    who,
)
from chaos.history import integer
from chaos.model import JsonMap, Receipt
from chaos.ports import Canary, Flow, Rule, Scene
from chaos.schedule import Draw
from chaos.storm import Template

SHORT_S = 0.5
NO_ANSWER = ("timeout", "error")


@dataclass(frozen=True, slots=True)
class OneWayPartition:
    """Parameters `flow` (in: it hears nothing; out: it is not heard; both), `hold_ms`, `until`.

    Landed where the kernel counted dropped packets, a canary from the worker's own place got no
    answer at the beginning and at the end, one did before and after, and the rule is gone.
    """

    kind: str = "one_way_partition"

    def undo(self, scene: Scene) -> tuple[tuple[str, JsonMap], ...]:
        """Take the rules out of whatever container the service has then."""
        return (("clear_packets", {"service": container_of(scene.target()).service}),)

    def fire(self, scene: Scene) -> JsonMap:
        """Drop, hold, clear."""
        target, packets, name = scene.target(), scene.world.packets, scene.action.fault_id
        container, listener = container_of(target), path_of(target)

        def canary(timeout_s: float) -> Canary:
            return packets.canaries(container, listener, 1, timeout_s)[0]

        before = canary(PATIENCE_S)
        on_ns = time.monotonic_ns()
        packets.drop(container, Rule(name, Flow(str(scene.action.params["flow"]))))
        during = canary(SHORT_S)
        met = wait_until(scene, target, on_ns)
        last = canary(SHORT_S)
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
            "before": json_of(before),
            "during": json_of(during),
            "last": json_of(last),
            "after": json_of(canary(PATIENCE_S)),
        }

    def receipt(self, scene: Scene, fired: JsonMap) -> Receipt:
        """Compare counters and canaries."""
        felt, dropped = felt_of(fired), integer(fired["dropped"]) or 0
        bitten = dropped > 0 and dropped == fired["seen"] and fired["is_gone"] is True
        return receipt_of(scene, fired, bitten and felt.only(*NO_ANSWER))


FAULT = OneWayPartition()


def _drawn(draw: Draw, fault_id: str) -> JsonMap:
    return {
        "flow": draw.choice(fault_id, "flow", ("in", "out")),
        "hold_ms": draw.integer(fault_id, "hold_ms", 500, 4500),
    }


TEMPLATE = Template(_drawn)
