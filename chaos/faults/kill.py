"""A signal that ends the target's container: through the engine, or from the host's side.

After the engine's own kill its restart policy rests; a signal from the host's side leaves it in
force.
"""

import time
from dataclasses import dataclass

from chaos.history import integer, text
from chaos.model import Container, JsonMap, Landed, NoTarget, Receipt
from chaos.ports import Scene
from chaos.ports.processes import ContainerState, as_evidence, as_json, container_in
from chaos.storm import Aim, Template

DEATH_TIMEOUT_S = 10.0
ENGINE, HOST = "engine", "host"
EXIT_CODES = {"SIGKILL": (137,), "SIGTERM": (143, 0), "SIGSEGV": (139,)}
"""A process that answers SIGTERM may end well: the runtime's own do."""


@dataclass(frozen=True, slots=True)
class Kill:
    """Parameters `signal` (SIGKILL unless given), `via` ("engine" or "host") and `process`.

    `process` is "first" or, below an init, "main": the first one that this started. Landed where
    the engine reports that death, and the container's process is another one, or none.
    """

    kind: str = "kill"

    def undo(self, scene: Scene) -> tuple[tuple[str, JsonMap], ...]:
        """Start the container again: the engine's restart policy does not, after its own kill."""
        return (("start_container", {"service": _container(scene).service}),)

    def fire(self, scene: Scene) -> JsonMap:
        """Send the signal."""
        target, container = scene.target(), _container(scene)
        signal = text(scene.action.params.get("signal")) or "SIGKILL"
        via = text(scene.action.params.get("via")) or ENGINE
        before = scene.world.processes.state(container)
        pid = _victim(scene, container, before) if via == HOST else before.pid
        since_ns = time.monotonic_ns()
        if via == HOST:
            _from_host(scene, container, pid, signal, paused=before.paused)
        else:
            scene.world.containers.kill(container, signal)
        death = scene.world.containers.wait_death(container, since_ns, DEATH_TIMEOUT_S)
        return {
            **as_json(container),
            "node_id": target.node_id,
            "lease_id": target.lease_id,
            "signal": signal,
            "via": via,
            "at_ns": since_ns,
            "pid": before.pid,
            "started_at": before.started_at,
            "died_ns": death.at_ns if death else None,
            "exit_code": death.exit_code if death else None,
        }

    def receipt(self, scene: Scene, fired: JsonMap) -> Receipt:
        """Compare the exit code that the engine reports with the one that the signal gives.

        It takes effect with the call: on a busy machine the engine tells of a death long after it.
        """
        expected = EXIT_CODES.get(str(fired["signal"]), ())
        died, since_ns = fired["exit_code"] is not None, integer(fired["at_ns"]) or 0
        container, processes = container_in(fired), scene.world.processes
        after = processes.state(container)
        changed = (after.pid, after.started_at) != (fired["pid"], fired["started_at"])
        evidence: JsonMap = {
            **fired,
            "expected_exit_code": [*expected],
            "told": as_evidence(processes.told(container, since_ns)),
            "pid_after": after.pid,
            "started_at_after": after.started_at,
            "restarts": after.restarts,
        }
        return Receipt(
            _landed(fired["exit_code"] in expected, died=died, changed=changed),
            evidence,
            took_effect_ns=since_ns if died else None,
            lost_lease_id=text(fired["lease_id"]) if died else None,
        )


def _landed(expected: bool, *, died: bool, changed: bool) -> Landed:
    if died and not changed:
        return Landed.INCONCLUSIVE
    return Landed.LANDED if died and expected else Landed.MISSED


def _from_host(scene: Scene, container: Container, pid: int, signal: str, *, paused: bool) -> None:
    """Signal the process; where the container is paused, let it go on, so that it can die."""
    scene.world.processes.signal(container, pid, signal)
    if paused:
        scene.world.containers.start(container)


def _victim(scene: Scene, container: Container, state: ContainerState) -> int:
    """Return the process to hit; to look at them all makes ready what the signal needs."""
    listing = scene.world.processes.listing(container)
    if (text(scene.action.params.get("process")) or "first") == "first":
        return state.pid
    started = [found.pid for found in listing if found.parent == state.pid]
    if not started:
        raise NoTarget(f"the first process of {container.service} has started no other")
    return started[0]


def _container(scene: Scene) -> Container:
    container = scene.target().container
    if container is None:
        raise NoTarget(f"{scene.action.target} is no container: nothing to kill")
    return container


FAULT = Kill()
TEMPLATE = Template(aims=(Aim.WORKER, Aim.COORDINATOR), takes=True, weight=2.0)
