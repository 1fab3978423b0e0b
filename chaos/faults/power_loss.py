"""Power losses at every moment of a recorded save, each rebuilt as a disk image and used again.

The save is made for this, by the runtime's own image beside the stack: no running part is touched.
"""

import time
from dataclasses import dataclass

from chaos.blackout import Choice, explore
from chaos.history import integer
from chaos.model import JsonMap, JsonValue, Landed, Receipt
from chaos.ports import Scene


@dataclass(frozen=True, slots=True)
class PowerLoss:
    """Parameters `what` is saved, the `choice` of states, how many (`limit`), images (`mounts`).

    Landed where a mounted image had lost something that the save had done.
    """

    kind: str = "power_loss"

    def undo(self, _scene: Scene) -> tuple[tuple[str, JsonMap], ...]:
        """Remove the recorder, the judges and their volumes."""
        return (("remove_power", {}),)

    def fire(self, scene: Scene) -> JsonMap:
        """Record, rebuild, mount and judge."""
        params, at_ns = scene.action.params, time.monotonic_ns()
        choice = Choice(
            integer(params.get("choice")) or 0,
            integer(params.get("limit")),
            integer(params.get("mounts")),
        )
        found = explore(
            scene.world.images, str(params["what"]), choice, lambda text: scene.note(text, {})
        )
        bad: list[JsonValue] = [dict(state) for state in found.bad]
        return {
            "what": found.what,
            "at_ns": at_ns,
            "operations": len(found.operations),
            "states_known": found.known,
            "states_judged": len(found.states),
            "power_lost": [dict(state) for state in found.mounted],
            "violations": bad,
        }

    def receipt(self, _scene: Scene, fired: JsonMap) -> Receipt:
        """Return the digest of each image with the operations that are lost in it."""
        images = fired["power_lost"]
        lossy = isinstance(images, list) and any(
            isinstance(image, dict) and image["lost"] and image["image_sha256"] for image in images
        )
        landed = Landed.LANDED if lossy else Landed.MISSED
        return Receipt(landed, fired, took_effect_ns=integer(fired["at_ns"]))


FAULT = PowerLoss()
