"""Damage to the files of a run: the base of every fault that leaves other bytes on a volume.

Aimed at the holder of a task it hits the task's newest checkpoints, aimed at "artifacts of ROLE"
an output that the coordinator has accepted.
"""

from dataclasses import dataclass

from chaos.harm import artifacts, checkpoints
from chaos.model import JsonMap, Receipt
from chaos.ports import Scene
from chaos.ports.disks import Mode
from chaos.schedule import Draw
from chaos.storm import Template


@dataclass(frozen=True, slots=True)
class Damage:
    """Parameters: `choice` (the seeded number that picks file and place), `depth`, `found_by`.

    See `chaos.harm.checkpoints` and `chaos.harm.artifacts`. Landed where a process of its own reads
    other bytes than before, and nobody could use them in between.
    """

    kind: str
    mode: Mode

    def undo(self, scene: Scene) -> tuple[tuple[str, JsonMap], ...]:
        """Bring a holder back, or the artifacts; checkpoints lie on a volume that goes too."""
        if artifacts.aimed_at(scene):
            return artifacts.undo(scene)
        return checkpoints.undo(scene)

    def fire(self, scene: Scene) -> JsonMap:
        """Damage."""
        if artifacts.aimed_at(scene):
            return artifacts.fire(scene, self.mode)
        return checkpoints.fire(scene, self.mode)

    def receipt(self, scene: Scene, fired: JsonMap) -> Receipt:
        """Compare what was read before and after, and with what happened next."""
        if artifacts.aimed_at(scene):
            return artifacts.receipt(fired)
        return checkpoints.receipt(scene, fired)


def _drawn(draw: Draw, fault_id: str) -> JsonMap:
    return {"choice": draw.integer(fault_id, "choice", 0, 2**31 - 1)}


IN_STORMS = Template(_drawn, takes=True, weight=0.25, checkpoints=2)
"""Eight kinds together come as often as two others."""
