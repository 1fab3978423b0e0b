"""A worker's own listener is closed for a while: its connections end, and new ones are refused."""

from dataclasses import dataclass

from chaos.canaries import felt_of, hold, path_of, receipt_of
from chaos.model import JsonMap, JsonValue, Receipt
from chaos.ports import Scene
from chaos.schedule import Draw
from chaos.storm import Template


@dataclass(frozen=True, slots=True)
class Down:
    """Parameter `hold_ms`; landed where canaries at the beginning and at the end were refused."""

    kind: str = "down"

    def undo(self, scene: Scene) -> tuple[tuple[str, JsonMap], ...]:
        """Open the listener."""
        return (("open_listener", {"listener": path_of(scene.target())}),)

    def fire(self, scene: Scene) -> JsonMap:
        """Close it, hold, open it."""
        network, listener = scene.world.network, path_of(scene.target())

        def close() -> JsonValue:
            network.switch(listener, on=False)
            return "disabled"

        switches = (close, lambda: network.switch(listener, on=True))
        return hold(scene, switches, lambda timeout_s: network.canary(listener, timeout_s))

    def receipt(self, scene: Scene, fired: JsonMap) -> Receipt:
        """Compare the canaries."""
        felt = felt_of(fired)
        return receipt_of(scene, fired, felt.only("refused"))


FAULT = Down()


def _drawn(draw: Draw, fault_id: str) -> JsonMap:
    return {"hold_ms": draw.integer(fault_id, "hold_ms", 500, 4500)}


TEMPLATE = Template(_drawn)
