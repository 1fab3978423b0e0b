"""System calls of a running process that end otherwise: the base of every fault at a call.

The process is the coordinator's own, or the training's, below its worker. What counts is the trace:
only a call in which the disturbance stands is evidence that it landed.
"""

import time
from abc import ABC, abstractmethod
from dataclasses import dataclass

from chaos.history import integer, text
from chaos.model import Container, JsonMap, JsonValue, Landed, NoTarget, Receipt
from chaos.ports import Scene
from chaos.ports.processes import as_json
from chaos.ports.tracers import Injection
from chaos.syscalls_trace import Syscall

COORDINATOR = "coordinator"
LOOK_S = 0.25
SHOWN = 5


@dataclass(frozen=True, slots=True)
class AtCall(ABC):
    """Parameters `call` (names as strace has them), `path`, `below`, `nth` and `hold_ms`.

    `path` (exact) leaves out the calls that do not name it; of those hit only what lies `below` a
    folder counts. `nth` counts the calls of each thread. It holds until enough calls were hit, at
    most for `hold_ms`.
    """

    kind: str

    @abstractmethod
    def injection(self, params: JsonMap) -> Injection:
        """Return what happens at which calls."""

    @abstractmethod
    def hit(self, call: Syscall) -> bool:
        """Whether the disturbance stands in a call."""

    def enough(self, hits: tuple[Syscall, ...], params: JsonMap) -> bool:
        """Whether it need not hold any longer."""
        del params
        return bool(hits)

    def feel(self, scene: Scene) -> JsonMap:
        """Return what somebody else feels of it meanwhile at the coordinator."""
        del scene
        return {}

    def undo(self, scene: Scene) -> tuple[tuple[str, JsonMap], ...]:
        """Detach."""
        _container(scene)
        return (("detach_tracer", {"name": scene.action.fault_id}),)

    def fire(self, scene: Scene) -> JsonMap:
        """Attach, wait, detach."""
        target, container, params = scene.target(), _container(scene), scene.action.params
        tracers, name = scene.world.tracers, scene.action.fault_id
        injection = self.injection(params)
        inner = container.service != COORDINATOR
        on_ns = tracers.attach(container, name, injection, inner=inner)
        deadline = time.monotonic() + (integer(params.get("hold_ms")) or 0) / 1e3
        felt = self.feel(scene) if not inner else {}
        hits: tuple[Syscall, ...] = ()
        while time.monotonic() < deadline and not self.enough(hits, params):
            scene.wait(lambda _: False, LOOK_S)
            hits = self._hits(scene, injection)
        hits = self._hits(scene, injection)
        scene.undo_now()
        told: list[JsonValue] = [_told(call) for call in hits[:SHOWN]]
        return {
            **as_json(container),
            **felt,
            "node_id": target.node_id,
            "job_id": target.job_id,
            "task_id": target.task_id,
            "lease_id": target.lease_id,
            "inject": f"{injection.calls}:{injection.what}:when={injection.when}",
            "on_ns": on_ns,
            "off_ns": time.monotonic_ns(),
            "hits": len(hits),
            "calls": told,
        }

    def receipt(self, scene: Scene, fired: JsonMap) -> Receipt:
        """Count the calls that were hit."""
        del scene
        landed = Landed.LANDED if integer(fired["hits"]) else Landed.MISSED
        return Receipt(landed, fired, took_effect_ns=integer(fired["on_ns"]))

    def _hits(self, scene: Scene, injection: Injection) -> tuple[Syscall, ...]:
        names = injection.calls.split(",")
        below = text(scene.action.params.get("below")) or ""
        return tuple(
            call
            for call in scene.world.tracers.calls(scene.action.fault_id)
            if call.name in names
            and self.hit(call)
            and any(path.startswith(below) for path in call.paths)
        )


def when(params: JsonMap, *, on: bool = False) -> str:
    """Return which call of each thread is meant; with `on`, that one and all after it."""
    return f"{integer(params.get('nth')) or 1}{'+' if on else ''}"


def call_of(params: JsonMap) -> str:
    """Return the names of the calls; NoTarget without any."""
    found = text(params.get("call"))
    if found is None:
        raise NoTarget("the fault names no `call`")
    return found


def _told(call: Syscall) -> JsonValue:
    return {
        "name": call.name,
        "paths": [*call.paths],
        "nth": call.nth,
        "at_s": call.at_s,
        "errno": call.errno,
        "result": call.result,
    }


def _container(scene: Scene) -> Container:
    container = scene.target().container
    if container is None:
        raise NoTarget(f"{scene.action.target} is no container: it makes no system calls")
    return container
