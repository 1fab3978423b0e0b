"""A container gets a small share of one core, for a while."""

import time
from dataclasses import dataclass

from chaos.history import integer
from chaos.model import Container, JsonMap, Landed, NoTarget, Receipt
from chaos.ports import Scene
from chaos.ports.processes import as_json
from chaos.schedule import Draw
from chaos.storm import Template

HOLD_MS = 4000
CORES_PERCENT = 10
MIN_PERIODS = 5


@dataclass(frozen=True, slots=True)
class CpuStarvation:
    """Parameters `core_percent` (of one core, 10 unless given) and `hold_ms`.

    Landed where the control group was made to wait in at least 5 periods more than before; a
    container that wants no more than its share is not harmed.
    """

    kind: str = "cpu_starvation"

    def undo(self, scene: Scene) -> tuple[tuple[str, JsonMap], ...]:
        """Give it back what it may use."""
        return (("restore_limits", scene.world.processes.limits(_container(scene))),)

    def fire(self, scene: Scene) -> JsonMap:
        """Lower the quota, wait, and take it back."""
        target, container = scene.target(), _container(scene)
        params, processes = scene.action.params, scene.world.processes
        percent = integer(params.get("core_percent")) or CORES_PERCENT
        before, on_ns = processes.usage(container), time.monotonic_ns()
        processes.throttle(container, percent / 100)
        scene.wait(lambda _: False, (integer(params.get("hold_ms")) or HOLD_MS) / 1e3)
        after, off_ns = processes.usage(container), time.monotonic_ns()
        scene.undo_now()
        return {
            **as_json(container),
            "node_id": target.node_id,
            "lease_id": target.lease_id,
            "core_percent": percent,
            "on_ns": on_ns,
            "off_ns": off_ns,
            "throttled_before": before.throttled_periods,
            "throttled_after": after.throttled_periods,
        }

    def receipt(self, scene: Scene, fired: JsonMap) -> Receipt:
        """Compare both readings of the counter."""
        before, after = integer(fired["throttled_before"]), integer(fired["throttled_after"])
        if before is None or after is None:
            return Receipt(Landed.INCONCLUSIVE, fired)
        landed = Landed.LANDED if after - before >= MIN_PERIODS else Landed.MISSED
        return Receipt(landed, fired, took_effect_ns=integer(fired["on_ns"]))


def _container(scene: Scene) -> Container:
    container = scene.target().container
    if container is None:
        raise NoTarget(f"{scene.action.target} is no container: nothing to starve")
    return container


FAULT = CpuStarvation()


def _drawn(draw: Draw, fault_id: str) -> JsonMap:
    return {"hold_ms": draw.integer(fault_id, "hold_ms", 2000, 4000)}


TEMPLATE = Template(_drawn)
