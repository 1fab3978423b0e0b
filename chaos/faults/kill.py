"""A signal that ends the target's container, through the engine."""

import time
from dataclasses import dataclass

from chaos.history import integer, text
from chaos.model import Container, JsonMap, Landed, NoTarget, Receipt
from chaos.ports import Scene

DEATH_TIMEOUT_S = 10.0
EXIT_CODES = {"SIGKILL": 137, "SIGTERM": 143, "SIGSEGV": 139}


@dataclass(frozen=True, slots=True)
class Kill:
    """Parameter `signal` (SIGKILL unless given); landed where the engine reports that death."""

    kind: str = "kill"

    def undo(self, scene: Scene) -> tuple[tuple[str, JsonMap], ...]:
        """Start the container again: the engine's restart policy does not, after such a kill."""
        return (("start_container", {"service": _container(scene).service}),)

    def fire(self, scene: Scene) -> JsonMap:
        """Send the signal."""
        target, container = scene.target(), _container(scene)
        since_ns = time.monotonic_ns()
        signal = text(scene.action.params.get("signal")) or "SIGKILL"
        scene.world.containers.kill(container, signal)
        death = scene.world.containers.wait_death(container, since_ns, DEATH_TIMEOUT_S)
        return {
            "service": container.service,
            "container_id": container.container_id,
            "node_id": target.node_id,
            "lease_id": target.lease_id,
            "signal": signal,
            "at_ns": since_ns,
            "died_ns": death.at_ns if death else None,
            "exit_code": death.exit_code if death else None,
        }

    def receipt(self, scene: Scene, fired: JsonMap) -> Receipt:
        """Compare the exit code that the engine reports with the one that the signal gives.

        It takes effect with the call: on a busy machine the engine tells of a death long after it.
        """
        expected = EXIT_CODES.get(str(fired["signal"]))
        died = fired["exit_code"] is not None
        landed = Landed.LANDED if died and fired["exit_code"] == expected else Landed.MISSED
        return Receipt(
            landed,
            {**fired, "expected_exit_code": expected},
            took_effect_ns=integer(fired["at_ns"]) if died else None,
            lost_lease_id=text(fired["lease_id"]) if died else None,
        )


def _container(scene: Scene) -> Container:
    container = scene.target().container
    if container is None:
        raise NoTarget(f"{scene.action.target} is no container: nothing to kill")
    return container


FAULT = Kill()
