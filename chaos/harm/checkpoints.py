"""The newest checkpoints of a task rot under a frozen worker, which is then killed.

Frozen, the worker saves nothing newer, and its session stays open: nobody can claim the task before
the damage is done. Parameter `depth`: how many of the newest checkpoints, one unless given.
"""

import time

from chaos.history import integer, text
from chaos.model import Comeback, Container, JsonMap, JsonValue, Landed, NoTarget, Receipt
from chaos.ports import Scene
from chaos.ports.disks import HurtTree, Mode, Volume

CLAIM_TIMEOUT_S = 30.0
DEATH_TIMEOUT_S = 10.0
KILLED = 137


def undo(scene: Scene) -> tuple[tuple[str, JsonMap], ...]:
    """Start the container again, or go on; the bytes lie on a volume that goes with the run."""
    return (("start_container", {"service": _worker(scene).service}),)


def fire(scene: Scene, mode: Mode) -> JsonMap:
    """Freeze the holder, damage its newest checkpoints, kill it; go on where there was nothing."""
    target, container = scene.target(), _worker(scene)
    choice = integer(scene.action.params.get("choice")) or 0
    depth = integer(scene.action.params.get("depth")) or 1
    containers, disks = scene.world.containers, scene.world.disks
    containers.get_ready_to_kill()
    disks.probe(Volume.CHECKPOINTS)
    frozen_ns = time.monotonic_ns()
    containers.pause(container)
    hurt = disks.hurt_checkpoints(str(target.job_id), str(target.task_id), mode, depth, choice)
    told = {
        "mode": mode,
        "depth": depth,
        "service": container.service,
        "node_id": target.node_id,
        "task_id": target.task_id,
        "lease_id": target.lease_id,
        "frozen_ns": frozen_ns,
        **_told(hurt),
    }
    if not _bitten(hurt):
        scene.undo_now()
        return {**told, "reason": hurt.reason or "the same bytes are read as before"}
    killed_ns = time.monotonic_ns()
    containers.kill_frozen(container)
    death = containers.wait_death(container, killed_ns, DEATH_TIMEOUT_S)
    return {
        **told,
        "killed_ns": killed_ns,
        "died_ns": death.at_ns if death else None,
        "exit_code": death.exit_code if death else None,
    }


def receipt(scene: Scene, fired: JsonMap) -> Receipt:
    """Wait for the next claim, which must come after the damage."""
    if "reason" in fired:
        return Receipt(Landed.MISSED, fired)
    if scene.action.comeback is Comeback.AT_ONCE:
        scene.undo_now()
    task_id, lease_id = str(fired["task_id"]), str(fired["lease_id"])
    scene.wait(lambda seen: seen.moved_on(lease_id), CLAIM_TIMEOUT_S)
    claim = scene.observation().next_claim(task_id, lease_id)
    claimed_ns = integer(claim.get("mono_ns")) if claim else None
    evidence: JsonMap = {
        **fired,
        "next_claim_ns": claimed_ns,
        "next_lease_id": text(claim.get("lease_id")) if claim else None,
    }
    died = fired["exit_code"] is not None
    return Receipt(
        _landed(fired, claimed_ns),
        evidence,
        took_effect_ns=integer(fired["killed_ns"]) if died else None,
        lost_lease_id=lease_id if died else None,
    )


def _bitten(hurt: HurtTree) -> bool:
    """Whether something else is read now in every step that was to be hit."""
    changed = [any(file.changed for file in step.files) for step in hurt.steps]
    return bool(changed) and all(changed)


def _told(hurt: HurtTree) -> dict[str, JsonValue]:
    """Return what was done as evidence: `corrupted` are the steps that are no good any more."""
    files: list[JsonValue] = [
        {"path": file.path, "before_sha256": file.before_sha256, "after_sha256": file.after_sha256}
        for step in hurt.steps
        for file in step.files
    ]
    bad = [step for step in hurt.steps if step.counts]
    return {
        "at_ns": hurt.at_ns,
        "step": bad[0].step if bad else None,
        "written_by": hurt.steps[0].attempt_id if hurt.steps else None,
        "corrupted": [{"manifest_id": step.manifest_id, "step": step.step} for step in bad],
        "files": files,
    }


def _landed(fired: JsonMap, claimed_ns: int | None) -> Landed:
    at_ns = integer(fired["at_ns"])
    if fired["exit_code"] != KILLED:
        return Landed.MISSED
    if claimed_ns is None or at_ns is None:
        return Landed.INCONCLUSIVE
    return Landed.LANDED if at_ns < claimed_ns else Landed.MISSED


def _worker(scene: Scene) -> Container:
    target = scene.target()
    if target.container is None or target.task_id is None or target.lease_id is None:
        raise NoTarget(f"{target.symbol} is no worker that holds a task")
    return target.container
