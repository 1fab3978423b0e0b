"""The wall clock of a container jumps, and stays off for a while; its monotonic clock goes on.

A small offset is a skew. Needs the variant "clock" of the stack.
"""

import time
from dataclasses import dataclass

from chaos.history import integer
from chaos.model import Container, JsonMap, Landed, NoTarget, Receipt
from chaos.ports import Scene
from chaos.ports.processes import ClockReading, as_json
from chaos.schedule import Draw
from chaos.storm import Aim, Template

HOLD_MS = 3000
SETTLE_S = 2.0
TOLERANCE_S = 1.0


@dataclass(frozen=True, slots=True)
class ClockJump:
    """Parameters `offset_s`, forwards or backwards, and `hold_ms`.

    Landed where the container itself reads that other time, its first process has the same clock,
    and its monotonic clock is the host's. Where the log of that process says another time, the
    pieces contradict: inconclusive.
    """

    kind: str = "clock_jump"

    def undo(self, scene: Scene) -> tuple[tuple[str, JsonMap], ...]:
        """Set it right."""
        return (("set_clock_right", {"service": _container(scene).service}),)

    def fire(self, scene: Scene) -> JsonMap:
        """Set it wrong, wait, read it, and set it right."""
        target, container, clocks = scene.target(), _container(scene), scene.world.clocks
        params = scene.action.params
        offset_s, before = _offset_s(params), clocks.read(container)
        on_ns = time.monotonic_ns()
        clocks.set(container, offset_s)
        hold_s = (integer(params.get("hold_ms")) or HOLD_MS) / 1e3
        scene.wait(lambda _: False, max(SETTLE_S, hold_s))
        during = clocks.read(container)
        off_ns = time.monotonic_ns()
        scene.undo_now()
        return {
            **as_json(container),
            "node_id": target.node_id,
            "lease_id": target.lease_id,
            "offset_s": offset_s,
            "on_ns": on_ns,
            "off_ns": off_ns,
            "off_before_s": before.off_s,
            "off_during_s": during.off_s,
            "monotonic_off_s": during.monotonic_off_s,
            "reaches_first": during.reaches_first,
            "told_off_s": _told_off_s(during, on_ns),
        }

    def receipt(self, scene: Scene, fired: JsonMap) -> Receipt:
        """Compare what the container's clocks say with what they were meant to."""
        wanted = float(str(fired["offset_s"]))
        moved = float(str(fired["off_during_s"])) - float(str(fired["off_before_s"]))
        read = abs(moved - wanted) < TOLERANCE_S and bool(fired["reaches_first"])
        steady = abs(float(str(fired["monotonic_off_s"]))) < TOLERANCE_S
        told = fired["told_off_s"]
        landed = Landed.LANDED if read and steady else Landed.MISSED
        if read and told is not None and abs(float(str(told)) - wanted) >= TOLERANCE_S:
            landed = Landed.INCONCLUSIVE
        return Receipt(landed, fired, took_effect_ns=integer(fired["on_ns"]))


def _offset_s(params: JsonMap) -> float:
    found = params.get("offset_s")
    return float(found) if isinstance(found, int | float) else 0.0


def _told_off_s(reading: ClockReading, on_ns: int) -> float | None:
    """Return how far off the log is where it speaks of the time after the jump had settled."""
    if reading.told_ns is None or reading.told_ns < on_ns + SETTLE_S * 1e9:
        return None
    return reading.told_off_s


def _container(scene: Scene) -> Container:
    container = scene.target().container
    if container is None:
        raise NoTarget(f"{scene.action.target} is no container: it has no clock of its own")
    return container


FAULT = ClockJump()


def _drawn(draw: Draw, fault_id: str) -> JsonMap:
    return {
        "offset_s": draw.choice(fault_id, "offset_s", (-3600, -3, 3600, 86_400)),
        "hold_ms": draw.integer(fault_id, "hold_ms", 2500, 4000),
    }


TEMPLATE = Template(_drawn, aims=(Aim.WORKER, Aim.COORDINATOR), variant="clock")
