"""A run on an in-memory machine, with faults made for the test."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from chaos import registry
from chaos.controller import Controller, Outcome, Run
from chaos.history import History
from chaos.model import Action, JobRequest, JsonMap, Landed, Receipt, Trigger
from chaos.ports import Scene
from chaos.schedule import Draw, Experiment, make_plan
from chaos.testing import FakeMachine

JOBS = {
    "reference": JobRequest("reference", ("true",)),
    "main": JobRequest("main", ("true",)),
}


@dataclass
class KillHolder:
    """Kills the holder of main, and calls `during` when it fires."""

    kind: str = "kill"
    during: Callable[[Scene], None] = lambda scene: None
    landed: Landed = Landed.LANDED
    fired: list[str] = field(default_factory=list)

    def undo(self, scene: Scene) -> tuple[tuple[str, JsonMap], ...]:
        container = scene.target().container
        assert container is not None
        return (("start_container", {"service": container.service}),)

    def fire(self, scene: Scene) -> JsonMap:
        target = scene.target()
        assert target.container is not None
        self.fired.append(scene.action.fault_id)
        self.during(scene)
        scene.world.containers.kill(target.container)
        return {"lease_id": target.lease_id, "service": target.container.service}

    def receipt(self, scene: Scene, fired: JsonMap) -> Receipt:
        container = scene.world.containers.coordinator()
        service = str(fired["service"])
        found = scene.world.containers.wait_death(
            type(container)(f"id-{service}", service, container.run_id), 0, 1.0
        )
        assert found is not None
        return Receipt(self.landed, {"exit_code": 137}, found.at_ns, str(fired["lease_id"]))


def kill_at(step: int, fault_id: str = "kill-1", deadline_s: float = 20.0) -> Action:
    return Action(fault_id, "kill", "holder of main", Trigger(step_at_least=step), deadline_s)


def experiment_of(*schedule: Action, name: str = "storm") -> Experiment:
    return Experiment(
        name=name,
        summary="kills a worker",
        workload="digits",
        faults=lambda draw: schedule,
        invariants=("same_as_reference", "resume_newest_valid", "detection_bound"),
        drain_s=20.0,
    )


@pytest.fixture
def machine() -> FakeMachine:
    return FakeMachine()


@pytest.fixture
def kill() -> type[KillHolder]:
    return KillHolder


@pytest.fixture
def action() -> Callable[..., Action]:
    return kill_at


@pytest.fixture
def experiment() -> Callable[..., Experiment]:
    return experiment_of


@pytest.fixture
def draw() -> Draw:
    return Draw(1)


@dataclass
class Harness:
    """Runs a schedule on the machine and reads what was written."""

    machine: FakeMachine
    folder: Path
    said: list[str] = field(default_factory=list)

    def run(
        self, fault: KillHolder, *schedule: Action, keep: bool = False, floor: int = 0
    ) -> Outcome:
        experiment = replace(experiment_of(*schedule), floor=floor)
        plan = make_plan(experiment, 1, 3, JOBS, images={})
        run = Run("run-1", self.folder, plan, JOBS, lambda: keep, poll_s=0.001, steady_s=0.2)
        faults = {fault.kind: fault}
        return Controller(self.machine, faults, run, self.said.append).carry_out()

    @property
    def history(self) -> History:
        return History.load(self.folder / "history.jsonl")

    @property
    def journal(self) -> Path:
        return self.folder / "journal.jsonl"


@pytest.fixture
def harness(machine: FakeMachine, tmp_path: Path) -> Harness:
    return Harness(machine, tmp_path)


class DigitsTwin:
    """A workload of two jobs."""

    name = "digits"

    def jobs(self, seed: int, count: int) -> dict[str, JobRequest]:
        return JOBS


@pytest.fixture
def fake_registry(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Replace what is in the packages of the harness by what the test gives."""

    def replace(fault: KillHolder, *experiments: Experiment) -> None:
        monkeypatch.setattr(registry, "experiments", lambda: experiments)
        monkeypatch.setattr(registry, "faults", lambda: {"kill": fault})
        monkeypatch.setattr(registry, "workload", lambda name: DigitsTwin())
        monkeypatch.setattr("chaos.runner.POLL_S", 0.001)

    return replace
