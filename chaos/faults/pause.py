"""Every process of a container freezes for longer than a lease, and then goes on.

Of a worker this makes a zombie: its connections stay open, and only its silence tells.
"""

import time
from dataclasses import dataclass

from chaos.history import integer, mapping, text
from chaos.model import Container, JsonMap, Landed, NoTarget, Receipt
from chaos.ports import Scene
from chaos.ports.processes import Told, as_evidence, as_json, container_in
from chaos.schedule import Draw
from chaos.storm import Template

MIN_HOLD_MS = 3500
PATH = "worker-1"
PROBE_TIMEOUT_S = 0.5


@dataclass(frozen=True, slots=True)
class Pause:
    """Parameter `min_hold_ms`, longer than the lease.

    A worker is frozen until another has its task, at least so long. Landed where the engine tells
    of pause and resume, so far apart, and meanwhile nothing was heard: no word of the worker under
    its lease, or no answer of the coordinator.
    """

    kind: str = "pause"

    def undo(self, scene: Scene) -> tuple[tuple[str, JsonMap], ...]:
        """Let it go on; where it was killed meanwhile, start it again."""
        return (("start_container", {"service": _container(scene).service}),)

    def fire(self, scene: Scene) -> JsonMap:
        """Freeze it, wait, and let it go on."""
        target, container = scene.target(), _container(scene)
        on_ns = time.monotonic_ns()
        scene.world.containers.pause(container)
        task_id, lease_id = target.task_id, target.lease_id
        if lease_id is not None:
            mine = lease_id
            scene.wait(lambda seen: seen.moved_on(mine), scene.remaining_s())
        hold_s = (integer(scene.action.params.get("min_hold_ms")) or MIN_HOLD_MS) / 1e3
        probes = [_probe(scene)] if lease_id is None else []
        scene.wait(lambda _: False, max(0.0, hold_s - (time.monotonic_ns() - on_ns) / 1e9))
        probes += [_probe(scene)] if lease_id is None else []
        scene.undo_now()
        return {
            **as_json(container),
            "node_id": target.node_id,
            "task_id": task_id,
            "lease_id": lease_id,
            "hold_ms": int(hold_s * 1e3),
            "on_ns": on_ns,
            "off_ns": time.monotonic_ns(),
            "probes": [*probes],
        }

    def receipt(self, scene: Scene, fired: JsonMap) -> Receipt:
        """Compare what the engine tells of both ends with what was heard in between."""
        on_ns = integer(fired["on_ns"]) or 0
        told = scene.world.processes.told(container_in(fired), on_ns, until="unpause")
        paused = _first(told, "pause")
        resumed = _first(told, "unpause") or _first(told, "die")
        heard, claimed = _heard(scene, fired, paused, resumed)
        long_enough = (
            paused is not None
            and resumed is not None
            and (resumed.at_ns - paused.at_ns) / 1e6 >= (integer(fired["hold_ms"]) or 0) * 0.95
        )
        evidence: JsonMap = {**fired, "told": as_evidence(told), "heard": heard, "claimed": claimed}
        is_worker = fired["lease_id"] is not None
        silent = not heard and (claimed if is_worker else fired["probes"] == ["timeout", "timeout"])
        return Receipt(
            Landed.LANDED if long_enough and silent else Landed.MISSED,
            evidence,
            took_effect_ns=on_ns,
            lost_lease_id=text(fired["lease_id"]) if long_enough else None,
        )


def _probe(scene: Scene) -> str:
    """Ask the coordinator something, through a worker's path."""
    return scene.world.network.probe(PATH, PROBE_TIMEOUT_S).outcome


def _first(told: tuple[Told, ...], name: str) -> Told | None:
    return next((each for each in told if each.name == name), None)


def _heard(
    scene: Scene, fired: JsonMap, paused: Told | None, resumed: Told | None
) -> tuple[int, bool]:
    """Count the worker's words under its lease between both ends; tell whether another claimed."""
    if fired["lease_id"] is None or paused is None or resumed is None:
        return 0, False
    task_id, lease_id = str(fired["task_id"]), str(fired["lease_id"])
    between = [
        event
        for event in scene.observation().events_of(task_id)
        if paused.at_ns < (integer(event.get("mono_ns")) or 0) < resumed.at_ns
    ]
    own = {"LEASE_RENEWED", "TASK_COMMIT_ACCEPTED", "CHECKPOINT_MANIFEST_COMMITTED"}
    words = [e for e in between if e.get("lease_id") == lease_id and e.get("type") in own]
    claims = [
        event
        for event in between
        if event.get("type") == "LEASE_CLAIMED"
        and mapping(event.get("data")).get("node_id") != fired["node_id"]
    ]
    return len(words), bool(claims)


def _container(scene: Scene) -> Container:
    container = scene.target().container
    if container is None:
        raise NoTarget(f"{scene.action.target} is no container: nothing to freeze")
    return container


FAULT = Pause()


def _drawn(draw: Draw, fault_id: str) -> JsonMap:
    return {"min_hold_ms": draw.integer(fault_id, "min_hold_ms", MIN_HOLD_MS, 2 * MIN_HOLD_MS)}


TEMPLATE = Template(_drawn, takes=True)
