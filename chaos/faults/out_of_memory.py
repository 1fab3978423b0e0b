"""A worker's container gets so little memory that the kernel kills what asks for more.

The payload does the asking: one that needs little is not harmed.
"""

import time
from dataclasses import dataclass

from chaos.history import integer, text
from chaos.model import Container, JsonMap, Landed, NoTarget, Observation, Receipt
from chaos.ports import Scene
from chaos.ports.processes import as_json, container_in

MIB = 1 << 20
ENDS = ("TASK_ATTEMPT_FAILED", "TASK_COMMIT_ACCEPTED", "LEASE_EXPIRED")


@dataclass(frozen=True, slots=True)
class OutOfMemory:
    """Parameter `room_mib`: how much more than now the container may use.

    Landed where the `oom_kill` counter of its control group rose until the attempt ended. With
    several attempts in one container the counter tells of none: inconclusive.
    """

    kind: str = "out_of_memory"

    def undo(self, scene: Scene) -> tuple[tuple[str, JsonMap], ...]:
        """Give it the memory back, and start it where the kernel has ended it."""
        container = _worker(scene)
        limits = scene.world.processes.limits(container)
        return (
            ("restore_limits", limits),
            ("start_container", {"service": container.service}),
        )

    def fire(self, scene: Scene) -> JsonMap:
        """Lower the limit, and wait until the attempt has ended."""
        target, container = scene.target(), _worker(scene)
        processes, task_id, lease_id = scene.world.processes, target.task_id, target.lease_id
        before = processes.usage(container)
        if before.memory_bytes is None:
            raise NoTarget(f"the host does not show how much memory {container.service} uses")
        room_mib = integer(scene.action.params.get("room_mib")) or 0
        limit_bytes = before.memory_bytes + room_mib * MIB
        beside = _others(scene.observation(), str(target.node_id), str(lease_id))
        on_ns = time.monotonic_ns()
        processes.limit_memory(container, limit_bytes)
        scene.wait(lambda seen: _ended(seen, str(task_id), str(lease_id)), scene.remaining_s())
        after = processes.usage(container)
        scene.undo_now()
        return {
            **as_json(container),
            "node_id": target.node_id,
            "task_id": task_id,
            "lease_id": lease_id,
            "limit_mib": limit_bytes // MIB,
            "used_mib": before.memory_bytes // MIB,
            "oom_kills_before": before.oom_kills,
            "oom_kills_after": after.oom_kills,
            "attempts_beside": beside,
            "on_ns": on_ns,
        }

    def receipt(self, scene: Scene, fired: JsonMap) -> Receipt:
        """Compare both readings of the counter."""
        before, after = integer(fired["oom_kills_before"]), integer(fired["oom_kills_after"])
        told = [t.name for t in scene.world.processes.told(container_in(fired), _on_ns(fired))]
        evidence: JsonMap = {**fired, "told": [*told]}
        if before is None or after is None or fired["attempts_beside"]:
            return Receipt(Landed.INCONCLUSIVE, evidence)
        rose = after > before
        return Receipt(
            Landed.LANDED if rose else Landed.MISSED,
            evidence,
            took_effect_ns=_on_ns(fired) if rose else None,
        )


def _on_ns(fired: JsonMap) -> int:
    return integer(fired["on_ns"]) or 0


def _ended(seen: Observation, task_id: str, lease_id: str) -> bool:
    return any(event.get("lease_id") == lease_id for event in seen.events_of(task_id, *ENDS))


def _others(seen: Observation, node_id: str, lease_id: str) -> int:
    """Count the attempts that share the container with this one."""
    tasks = [job.task for job in seen.jobs.values() if job.task is not None]
    held = [task for task in tasks if task.state == "LEASED" and task.node_id == node_id]
    return len({text(task.lease_id) for task in held} - {lease_id})


def _worker(scene: Scene) -> Container:
    target = scene.target()
    if target.container is None or target.lease_id is None:
        raise NoTarget(f"{target.symbol} is no worker that holds a task")
    return target.container


FAULT = OutOfMemory()
