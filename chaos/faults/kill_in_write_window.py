"""SIGKILL of the worker that writes a checkpoint, between its first part and its manifest.

The window is open for as long as the state takes to write: nothing holds it open. A kill that
comes too late is seen on the volume; its victim is started again, and the next save is tried.
"""

import time
from dataclasses import dataclass

from chaos.history import integer, text
from chaos.model import Container, JsonMap, Landed, NoTarget, Observation, Receipt, Target
from chaos.ports import Scene

DEATH_TIMEOUT_S = 10.0
KILLED = 137
LOOK_S = 2.0


@dataclass(frozen=True, slots=True)
class KillInWriteWindow:
    """Parameter `min_step`: the first step whose save may be hit."""

    kind: str = "kill_in_write_window"

    def undo(self, scene: Scene) -> tuple[tuple[str, JsonMap], ...]:
        """Start the container again."""
        return (("start_container", {"service": _worker(scene.target()).service}),)

    def fire(self, scene: Scene) -> JsonMap:
        """Kill in an open window, again where the window had closed, until the deadline."""
        tries = kills = 0
        while True:
            tries += 1
            tried = _one_try(scene)
            kills += tried.get("exit_code") is not None
            if _torn(tried) or "lease_id" not in tried or not _next_try(scene, tried):
                return {**tried, "tries": tries, "kills": kills}

    def receipt(self, scene: Scene, fired: JsonMap) -> Receipt:
        """Landed where the death left parts without a manifest, and no commit of that step."""
        lost = text(fired.get("lease_id")) if fired.get("exit_code") is not None else None
        return Receipt(
            Landed.LANDED if _torn(fired) else Landed.MISSED,
            fired,
            took_effect_ns=integer(fired.get("at_ns")) if lost else None,
            lost_lease_id=lost,
        )


def _one_try(scene: Scene) -> JsonMap:
    """Wait for a window of the target's own attempt, kill, and look at what was left."""
    target = scene.target()
    container, files = _worker(target), scene.world.files
    job_id, task_id, lease_id = str(target.job_id), str(target.task_id), str(target.lease_id)
    min_step = integer(scene.action.params.get("min_step")) or 0
    while (left_s := min(LOOK_S, scene.remaining_s())) > 0:
        if (window := files.wait_write_window(target, min_step, left_s)) is not None:
            break
        held = scene.observation().holder(scene.action.trigger.role)
        if held is None or held.lease_id != lease_id:
            return {"reason": "another attempt took the task over", "lease_id": lease_id}
    else:
        return {"reason": "the holder opened no write window before the deadline"}
    at_ns = time.monotonic_ns()
    scene.world.containers.kill(container)
    death = scene.world.containers.wait_death(container, at_ns, DEATH_TIMEOUT_S)
    return {
        "service": container.service,
        "container_id": container.container_id,
        "node_id": target.node_id,
        "lease_id": lease_id,
        "step": window.step,
        "window_seen_ns": window.seen_ns,
        "at_ns": at_ns,
        "died_ns": death.at_ns if death else None,
        "exit_code": death.exit_code if death else None,
        "left": dict(files.staged_parts(job_id, task_id, lease_id, window.step)),
    }


def _torn(fired: JsonMap) -> bool:
    left = fired.get("left")
    return (
        fired.get("exit_code") == KILLED
        and isinstance(left, dict)
        and bool(left["parts"])
        and not left["manifest"]
        and not left["committed"]
    )


def _next_try(scene: Scene, tried: JsonMap) -> bool:
    """Heal, and wait until another attempt holds the task; False where there is no time left."""
    role = scene.action.trigger.role

    def held_again(seen: Observation) -> bool:
        held = seen.holder(role)
        return held is not None and held.lease_id != tried["lease_id"]

    def held_or_ended(seen: Observation) -> bool:
        return held_again(seen) or (role in seen.jobs and seen.jobs[role].terminal)

    scene.undo_now()
    scene.wait(held_or_ended, scene.remaining_s())
    if scene.remaining_s() <= 0 or not held_again(scene.observation()):
        return False
    scene.promise("start_container", {"service": _worker(scene.target()).service})
    return True


def _worker(target: Target) -> Container:
    if target.container is None or target.lease_id is None:
        raise NoTarget(f"{target.symbol} is no worker that holds a task")
    return target.container


FAULT = KillInWriteWindow()
