"""The twin of the machine as a whole."""

from collections.abc import Mapping

from chaos.model import Audit, Undo
from chaos.ports import RunSpec, World
from chaos.testing.disks import FakeDisks
from chaos.testing.images import FakeImages
from chaos.testing.network import FakeLogs, FakeNetwork, FakePackets
from chaos.testing.processes import FakeClocks, FakeProcesses
from chaos.testing.signs import FakeSigns
from chaos.testing.syscalls import FakeSyscalls
from chaos.testing.system import FakeSystem
from chaos.testing.tracers import FakeTracers


class FakeMachine:
    """A machine that remembers which runs have a stack on it and which undos it was asked for."""

    def __init__(self) -> None:
        self.systems: dict[str, FakeSystem] = {}
        self.disks: dict[str, FakeDisks] = {}
        self.processes: dict[str, FakeProcesses] = {}
        self.clocks: dict[str, FakeClocks] = {}
        self.signs = FakeSigns()
        self.tracers = FakeTracers()
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
        self.disks[spec.run_id] = FakeDisks(system)
        self.processes[spec.run_id] = FakeProcesses(system)
        self.clocks[spec.run_id] = FakeClocks()
        return World(
            stack=system,
            containers=system,
            network=FakeNetwork(),
            files=system,
            runtime=system,
            disks=self.disks[spec.run_id],
            processes=self.processes[spec.run_id],
            clocks=self.clocks[spec.run_id],
            packets=FakePackets(),
            logs=FakeLogs(),
            images=FakeImages(synced=spec.planted is None),
            signs=self.signs,
            tracers=self.tracers,
        )

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
        for twin in (self.disks, self.processes, self.clocks):
            twin[undo.run_id].undo(undo.action, undo.args)

    def audit(self, run_id: str) -> Audit:
        """Return the containers of a stack that is still up."""
        system = self.systems.get(run_id)
        return Audit(containers=("coordinator",) if system is not None and system.is_up else ())
