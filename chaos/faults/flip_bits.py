"""A bit of the newest committed checkpoint flips under a frozen worker, which is then killed.

Frozen, the worker saves nothing newer, and its session stays open: nobody can claim the task before
the bit has flipped.
"""

import time
from dataclasses import dataclass

from chaos.history import integer, text
from chaos.model import Comeback, Container, JsonMap, Landed, NoTarget, Receipt
from chaos.ports import Scene

CLAIM_TIMEOUT_S = 30.0
DEATH_TIMEOUT_S = 10.0
KILLED = 137


@dataclass(frozen=True, slots=True)
class FlipBits:
    """Parameter `choice`: the seeded number that picks part, offset and bit.

    Landed where the file reads back other bytes, the engine reports the death, and the next claim
    of the task came after the flip.
    """

    kind: str = "flip_bits"

    def undo(self, scene: Scene) -> tuple[tuple[str, JsonMap], ...]:
        """Start the container again, or go on; the bytes lie on a volume that goes with the run."""
        return (("start_container", {"service": _worker(scene).service}),)

    def fire(self, scene: Scene) -> JsonMap:
        """Freeze the holder, flip the bit, kill the holder."""
        target, container = scene.target(), _worker(scene)
        choice = integer(scene.action.params.get("choice")) or 0
        containers, files = scene.world.containers, scene.world.files
        frozen_ns = time.monotonic_ns()
        containers.pause(container)
        step, flip = files.flip_newest(str(target.job_id), str(target.task_id), choice)
        killed_ns = time.monotonic_ns()
        containers.kill(container)
        death = containers.wait_death(container, killed_ns, DEATH_TIMEOUT_S)
        return {
            "service": container.service,
            "node_id": target.node_id,
            "task_id": target.task_id,
            "lease_id": target.lease_id,
            "frozen_ns": frozen_ns,
            "killed_ns": killed_ns,
            "died_ns": death.at_ns if death else None,
            "exit_code": death.exit_code if death else None,
            "step": step,
            "written_by": flip.attempt_id,
            "corrupted": [{"manifest_id": flip.manifest_id, "step": step}],
            "path": flip.path,
            "before_sha256": flip.before_sha256,
            "after_sha256": flip.after_sha256,
            "at_ns": flip.at_ns,
        }

    def receipt(self, scene: Scene, fired: JsonMap) -> Receipt:
        """Wait for the next claim, which must come after the flip."""
        if scene.action.comeback is Comeback.AT_ONCE:
            scene.undo_now()
        task_id, lease_id = str(fired["task_id"]), str(fired["lease_id"])
        scene.wait(lambda seen: seen.next_claim(task_id, lease_id) is not None, CLAIM_TIMEOUT_S)
        claim = scene.observation().next_claim(task_id, lease_id)
        claimed_ns, at_ns = (
            integer(claim.get("mono_ns")) if claim else None,
            integer(fired["at_ns"]),
        )
        evidence: JsonMap = {
            **fired,
            "next_claim_ns": claimed_ns,
            "next_lease_id": text(claim.get("lease_id")) if claim else None,
        }
        died = fired["exit_code"] is not None
        return Receipt(
            _landed(fired, at_ns, claimed_ns),
            evidence,
            took_effect_ns=integer(fired["killed_ns"]) if died else None,
            lost_lease_id=lease_id if died else None,
        )


def _landed(fired: JsonMap, at_ns: int | None, claimed_ns: int | None) -> Landed:
    if fired["before_sha256"] == fired["after_sha256"] or fired["exit_code"] != KILLED:
        return Landed.MISSED
    if claimed_ns is None or at_ns is None:
        return Landed.INCONCLUSIVE
    return Landed.LANDED if at_ns < claimed_ns else Landed.MISSED


def _worker(scene: Scene) -> Container:
    target = scene.target()
    if target.container is None or target.task_id is None or target.lease_id is None:
        raise NoTarget(f"{target.symbol} is no worker that holds a task")
    return target.container


FAULT = FlipBits()
