"""Toxiproxy itself is killed and started again: nobody has a path to the coordinator meanwhile."""

import time
from dataclasses import dataclass

from chaos.canaries import HOLD_MS, PATIENCE_S, container_of, felt_of, json_of, receipt_of
from chaos.history import integer
from chaos.model import CannotRun, JsonMap, NoTarget, Receipt
from chaos.ports import Scene
from chaos.schedule import Draw
from chaos.storm import Aim, Template

DEATH_TIMEOUT_S = 10.0
UP_TIMEOUT_S = 15.0
PATIENCE_DOWN_S = 1.0
TICK_S = 0.05
SIGKILLED = 137
NO_PATH = ("error", "refused", "timeout", "reset", "closed")


@dataclass(frozen=True, slots=True)
class ToxiproxyDown:
    """Parameter `hold_ms`; on the target "toxiproxy".

    Landed where the engine tells of its death, canaries got nowhere, and one gets through the
    listeners that it has again; what other faults had switched on there is gone.
    """

    kind: str = "toxiproxy_down"

    def undo(self, scene: Scene) -> tuple[tuple[str, JsonMap], ...]:
        """Start it again."""
        return (("start_container", {"service": container_of(scene.target()).service}),)

    def fire(self, scene: Scene) -> JsonMap:
        """Kill it, hold, start it, and mark the time in the history."""
        container, network = container_of(scene.target()), scene.world.network
        listeners, toxics = network.listeners(), sorted(network.toxics())
        if not listeners:
            raise NoTarget("Toxiproxy has no listener")
        before = network.canary(listeners[0], PATIENCE_S)
        on_ns = time.monotonic_ns()
        scene.world.containers.kill(container)
        death = scene.world.containers.wait_death(container, on_ns, DEATH_TIMEOUT_S)
        during = network.canary(listeners[0], PATIENCE_DOWN_S)
        scene.wait(lambda _: False, (integer(scene.action.params.get("hold_ms")) or HOLD_MS) / 1e3)
        last = network.canary(listeners[0], PATIENCE_DOWN_S)
        scene.world.containers.start(container)
        found = _listeners_again(scene, listeners)
        after = network.canary(listeners[0], PATIENCE_S)
        off_ns = time.monotonic_ns()
        scene.note("no path to the coordinator", {"from_ns": on_ns, "until_ns": off_ns})
        return {
            "service": container.service,
            "on_ns": on_ns,
            "off_ns": off_ns,
            "died_with": death.exit_code if death else None,
            "listeners": [*listeners],
            "listeners_again": [*found],
            "toxics_lost": [*toxics],
            "before": json_of(before),
            "during": json_of(during),
            "last": json_of(last),
            "after": json_of(after),
        }

    def receipt(self, scene: Scene, fired: JsonMap) -> Receipt:
        """Compare canaries, death and listeners."""
        felt = felt_of(fired)
        died = fired["died_with"] == SIGKILLED
        again = fired["listeners"] == fired["listeners_again"]
        return receipt_of(scene, fired, died and again and felt.only(*NO_PATH))


def _listeners_again(scene: Scene, wanted: tuple[str, ...]) -> tuple[str, ...]:
    """Return the listeners once they are those of before, or those of the last look."""
    deadline, found = time.monotonic() + UP_TIMEOUT_S, tuple[str, ...]()
    while found != wanted and time.monotonic() < deadline:
        try:
            found = scene.world.network.listeners()
        except CannotRun:
            scene.wait(lambda _: False, TICK_S)
    return found


FAULT = ToxiproxyDown()


def _drawn(draw: Draw, fault_id: str) -> JsonMap:
    return {"hold_ms": draw.integer(fault_id, "hold_ms", 300, 1500)}


TEMPLATE = Template(_drawn, aims=(Aim.TOXIPROXY,))
