"""A container is asked to end and given notice, as a cloud does with a machine that it takes back.

With `then_start` it is started again in the same call of the engine: a restart.
"""

import time
from dataclasses import dataclass

from chaos.history import integer, text
from chaos.model import Container, JsonMap, Landed, NoTarget, Receipt, Target
from chaos.ports import Scene
from chaos.ports.processes import Told, as_evidence, as_json, container_in
from chaos.storm import Template

GRACE_S = 20
GRACEFUL = (0, 143)


@dataclass(frozen=True, slots=True)
class Stop:
    """Parameters `grace_s` (20 unless given), `saves` and `then_start`.

    Landed where the engine tells of SIGTERM and of an end with exit code 0 or 143, which are those
    that the runtime promises, and, with `saves`, the volume holds a checkpoint of the attempt that
    was committed after the notice. An end by force, after the grace, has missed: it is a kill.
    """

    kind: str = "stop"

    def undo(self, scene: Scene) -> tuple[tuple[str, JsonMap], ...]:
        """Start the container again."""
        return (("start_container", {"service": _container(scene).service}),)

    def fire(self, scene: Scene) -> JsonMap:
        """Give notice, and wait for the end."""
        target, container = scene.target(), _container(scene)
        params, processes = scene.action.params, scene.world.processes
        grace_s = integer(params.get("grace_s")) or GRACE_S
        before, saved = processes.state(container), _saved(scene, target)
        asked_ns = time.monotonic_ns()
        if params.get("then_start"):
            processes.restart(container, grace_s)
        else:
            processes.stop(container, grace_s)
        return {
            **as_json(container),
            "node_id": target.node_id,
            "job_id": target.job_id,
            "task_id": target.task_id,
            "lease_id": target.lease_id,
            "asked_ns": asked_ns,
            "ended_ns": time.monotonic_ns(),
            "started_at": before.started_at,
            "saved_before": saved,
            "saved_after": _saved(scene, target),
        }

    def receipt(self, scene: Scene, fired: JsonMap) -> Receipt:
        """Read what the engine told, and what the attempt saved after the notice."""
        asked_ns = integer(fired["asked_ns"]) or 0
        told = scene.world.processes.told(container_in(fired), asked_ns, until="die")
        notice, death = _first(told, "kill"), _first(told, "die")
        ended_well = death is not None and death.exit_code in GRACEFUL
        asked = notice is not None and notice.signal == 15
        state = scene.world.processes.state(container_in(fired))
        again = not scene.action.params.get("then_start") or (
            state.running and state.started_at != fired["started_at"]
        )
        saved = fired["saved_after"] != fired["saved_before"]
        landed = asked and ended_well and again
        if scene.action.params.get("saves"):
            landed = landed and saved
        evidence: JsonMap = {
            **fired,
            "told": as_evidence(told),
            "exit_code": death.exit_code if death else None,
            "saved_on_notice": fired["saved_after"] if saved else None,
            "started_at_after": state.started_at,
        }
        return Receipt(
            Landed.LANDED if landed else Landed.MISSED,
            evidence,
            took_effect_ns=asked_ns if death else None,
            lost_lease_id=text(fired["lease_id"]) if death else None,
        )


def _first(told: tuple[Told, ...], name: str) -> Told | None:
    return next((each for each in told if each.name == name), None)


def _saved(scene: Scene, target: Target) -> int | None:
    """Return the newest step that the attempt has committed, by the volume."""
    if target.task_id is None or target.lease_id is None:
        return None
    found = scene.world.files.committed(str(target.job_id), target.task_id)
    return max((each.step for each in found if each.attempt_id == target.lease_id), default=None)


def _container(scene: Scene) -> Container:
    container = scene.target().container
    if container is None:
        raise NoTarget(f"{scene.action.target} is no container: nothing to stop")
    return container


FAULT = Stop()
TEMPLATE = Template(takes=True)
