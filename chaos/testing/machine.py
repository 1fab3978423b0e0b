"""The twins of the network and of the machine as a whole."""

from collections.abc import Mapping

from chaos.model import Audit, Container, Undo
from chaos.ports import Probe, RunSpec, Toxic, World
from chaos.testing.images import FakeImages
from chaos.testing.syscalls import FakeSyscalls
from chaos.testing.system import FakeSystem


class FakeNetwork:
    """Listeners without a network: toxics are only kept."""

    def __init__(self) -> None:
        self.active: dict[str, dict[str, Toxic]] = {}

    def listener_of(self, container: Container) -> str:
        """Return the listener named like the worker."""
        return container.service

    def add(self, listener: str, toxic: Toxic) -> None:
        """Switch a toxic on."""
        self.active.setdefault(listener, {})[toxic.name] = toxic

    def remove(self, listener: str, name: str) -> None:
        """Switch a toxic off."""
        self.active.get(listener, {}).pop(name, None)

    def toxics(self) -> Mapping[str, tuple[Toxic, ...]]:
        """Return what is switched on."""
        return {name: tuple(found.values()) for name, found in self.active.items() if found}

    def probe(self, listener: str, timeout_s: float) -> Probe:
        """Time out where there is a toxic."""
        hurt = bool(self.active.get(listener))
        return Probe("timeout", timeout_s) if hurt else Probe("ok", 0.001)


class FakeMachine:
    """A machine that remembers which runs have a stack on it and which undos it was asked for."""

    def __init__(self) -> None:
        self.systems: dict[str, FakeSystem] = {}
        self.undone: list[Undo] = []
        self.explored: list[str] = []
        self.failing: set[str] = set()

    def images(self, planted: str | None) -> Mapping[str, str]:
        """Return one image, or two."""
        found = {"flashruntime/runtime:local": "sha256:1"}
        return {**found, **({f"planted:{planted}": "sha256:2"} if planted else {})}

    def world(self, spec: RunSpec) -> World:
        """Return a world whose stack is counted as soon as it starts."""
        system = FakeSystem(spec)
        self.systems[spec.run_id] = system
        images = FakeImages(synced=spec.planted is None)
        return World(system, system, FakeNetwork(), system, system, images)

    def syscalls(self, run_id: str, planted: str | None) -> FakeSyscalls:
        """Return the twin of what disturbs saves."""
        self.explored.append(run_id)
        return FakeSyscalls(synced=planted is None)

    def disk_images(self, run_id: str, planted: str | None) -> FakeImages:
        """Return saves that are synced, unless a bug was planted."""
        self.explored.append(run_id)
        return FakeImages(synced=planted is None)

    def runs(self) -> tuple[str, ...]:
        """Return the runs whose stack is up."""
        return tuple(run_id for run_id, system in self.systems.items() if system.is_up)

    def undo(self, undo: Undo) -> None:
        """Carry out an undo; actions in `failing` fail."""
        self.undone.append(undo)
        if undo.action in self.failing:
            raise RuntimeError(f"{undo.action} does not work today")
        system = self.systems.get(undo.run_id)
        if system is None:
            return
        if undo.action == "stack_down":
            system.is_up = False
        elif undo.action == "start_container":
            system.down.discard(str(undo.args["service"]))

    def audit(self, run_id: str) -> Audit:
        """Return the containers of a stack that is still up."""
        system = self.systems.get(run_id)
        return Audit(containers=("coordinator",) if system is not None and system.is_up else ())
