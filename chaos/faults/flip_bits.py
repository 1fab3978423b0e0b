"""One bit of the newest committed checkpoint flipped on the volume, while nobody holds the task."""

from dataclasses import dataclass

from chaos.history import integer, text
from chaos.model import JsonMap, Landed, NoTarget, Receipt
from chaos.ports import Scene

CLAIM_TIMEOUT_S = 30.0


@dataclass(frozen=True, slots=True)
class FlipBits:
    """Parameter `choice`: the seeded number that picks part, offset and bit.

    Landed where the file reads back other bytes, and before anybody claimed the task after the
    attempt that wrote it.
    """

    kind: str = "flip_bits"

    def undo(self, scene: Scene) -> tuple[tuple[str, JsonMap], ...]:
        """Return nothing: the bytes lie on a volume that belongs to the run, and goes with it."""
        return ()

    def fire(self, scene: Scene) -> JsonMap:
        """Flip the bit."""
        target = scene.target()
        if target.job_id is None or target.task_id is None:
            raise NoTarget(f"{target.symbol} is no checkpoint tree")
        choice = integer(scene.action.params.get("choice")) or 0
        step, flip = scene.world.files.flip_newest(target.job_id, target.task_id, choice)
        return {
            "task_id": target.task_id,
            "lease_id": flip.attempt_id,
            "step": step,
            "corrupted": [{"manifest_id": flip.manifest_id, "step": step}],
            "path": flip.path,
            "before_sha256": flip.before_sha256,
            "after_sha256": flip.after_sha256,
            "at_ns": flip.at_ns,
        }

    def receipt(self, scene: Scene, fired: JsonMap) -> Receipt:
        """Wait for the next claim, which must come after the flip."""
        task_id, lease_id = str(fired["task_id"]), str(fired["lease_id"])
        scene.wait(lambda seen: seen.next_claim(task_id, lease_id) is not None, CLAIM_TIMEOUT_S)
        claim = scene.observation().next_claim(task_id, lease_id)
        claimed_ns = integer(claim.get("mono_ns")) if claim else None
        at_ns = integer(fired["at_ns"])
        evidence: JsonMap = {
            **fired,
            "next_claim_ns": claimed_ns,
            "next_lease_id": text(claim.get("lease_id")) if claim else None,
        }
        if fired["before_sha256"] == fired["after_sha256"]:
            return Receipt(Landed.MISSED, evidence)
        if claimed_ns is None or at_ns is None:
            return Receipt(Landed.INCONCLUSIVE, evidence)
        landed = Landed.LANDED if at_ns < claimed_ns else Landed.MISSED
        return Receipt(landed, evidence, took_effect_ns=at_ns)


FAULT = FlipBits()
