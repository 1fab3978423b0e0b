"""A yard for the harness's adapters: real containers, network, volume and Toxiproxy, no runtime."""

import os
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from chaos.alive import mark
from chaos.model import (
    Action,
    CannotRun,
    JobView,
    JsonMap,
    Observation,
    Target,
    TaskView,
    Trigger,
    Undo,
)
from chaos.ports import RunSpec, World
from chaos.targets.engine import connect, run_labels
from chaos.targets.machine import DockerMachine

HELPER = os.environ.get("FLASHML_HELPER_IMAGE", "flashruntime/helper:local")
TOXIPROXY = os.environ.get("FLASHML_TOXIPROXY_IMAGE", "flashruntime/toxiproxy:local")
TESTCONTAINERS = {
    "TESTCONTAINERS_RYUK_DISABLED": "true",
    "TESTCONTAINERS_HOST_OVERRIDE": "127.0.0.1",
}
SERVER = """
import http.server
class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    def do_GET(self):
        self.send_response(200)
        self.send_header("Content-Length", "0")
        self.end_headers()
    def log_message(self, *_):
        pass
http.server.ThreadingHTTPServer(("", 8000), Handler).serve_forever()
"""
IDLE = "import signal; signal.sigwait({signal.SIGTERM})"
VOLUMES = ("checkpoints", "artifacts", "ledger")
JOB, TASK, LEASE = "job-000000000001", "job-000000000001-00000", "lease-1"


@dataclass
class Yard:
    """One run's stand-ins, and the adapters under test."""

    run_id: str
    machine: DockerMachine
    world: World
    client: Any


@dataclass
class YardScene:
    """A scene whose observations are what a test says; waiting moves them on."""

    action: Action
    world: World
    aim: Target
    machine: DockerMachine
    run_id: str
    seen: Observation = field(default_factory=Observation)
    promised: list[Undo] = field(default_factory=list)
    began_s: float = field(default_factory=time.monotonic)
    coming: Callable[[], list[JsonMap]] = field(default=lambda: [])

    def target(self) -> Target:
        return self.aim

    def observation(self) -> Observation:
        return self.seen

    def wait(self, condition: Callable[[Observation], bool], timeout_s: float) -> bool:
        deadline = time.monotonic() + min(timeout_s, self.remaining_s())
        while True:
            self.seen = replace(self.seen, events=(*self.seen.events, *self.coming()))
            if condition(self.seen):
                return True
            if time.monotonic() >= deadline:
                return False
            time.sleep(0.02)

    def remaining_s(self) -> float:
        return max(0.0, self.action.deadline_s - (time.monotonic() - self.began_s))

    def promise(self, action: str, args: JsonMap) -> None:
        self.promised.append(Undo(f"u{len(self.promised)}", self.run_id, "f", action, args))

    def undo_now(self) -> None:
        for undo in self.promised:
            self.machine.undo(undo)

    def note(self, text: str, data: JsonMap) -> None:
        pass


@pytest.fixture(scope="session")
def engine() -> Any:
    """The engine of this machine; a machine without one fails here, it does not skip."""
    return connect()


@pytest.fixture(scope="module")
def yard(engine: Any) -> Iterator[Yard]:
    """Stand-ins under a run label of their own; removed by that label whatever happens."""
    run_id = f"test-{uuid.uuid4().hex[:8]}"
    machine = DockerMachine()
    alive = mark(run_id)
    try:
        with ExitStack() as stack:
            start_stand_ins(engine, run_id, stack)
            world = machine.world(RunSpec(run_id, workers=1))
            await_listener(world)
            yield Yard(run_id, machine, world, engine)
    finally:
        machine.undo(Undo("stack", run_id, None, "stack_down"))
        if alive is not None:
            alive.close()


def start_stand_ins(engine: Any, run_id: str, stack: ExitStack) -> None:
    """Start a coordinator that answers /healthz, Toxiproxy and two idle workers."""
    labels = run_labels(run_id)
    network = engine.networks.create(
        f"{run_id}_edge", labels=labels | {"com.docker.compose.network": "edge"}
    )
    for name in VOLUMES:
        volume_labels = labels | {"com.docker.compose.volume": name}
        engine.volumes.create(f"{run_id}_{name}", labels=volume_labels)
    own = "import os; [os.chown(f'/v/{name}', 10001, 10001) for name in os.listdir('/v')]"
    places = [f"{run_id}_{name}:/v/{name}" for name in VOLUMES]
    engine.containers.run(
        HELPER, ["python3", "-c", own], volumes=places, remove=True, labels=labels
    )
    for service, image, command in (
        ("coordinator", HELPER, ["python3", "-c", SERVER]),
        ("toxiproxy", TOXIPROXY, None),
        ("worker-1", HELPER, ["python3", "-c", IDLE]),
        ("worker-2", HELPER, ["python3", "-c", IDLE]),
    ):
        container = stand_in(network.name, service, image, command, labels)
        stack.callback(container.stop)
        container.start()


def stand_in(network: str, service: str, image: str, command: Any, labels: dict[str, str]) -> Any:
    """Describe a container of the yard the way compose would label it."""
    from testcontainers.core.container import DockerContainer

    container = DockerContainer(image).with_kwargs(
        hostname=service,
        network=network,
        networking_config={network: network_alias(service)},
        labels=labels | {"com.docker.compose.service": service},
        init=command is not None,
    )
    if command is not None:
        container.with_command(command)
    return container.with_exposed_ports(8474) if service == "toxiproxy" else container


def network_alias(service: str) -> Any:
    from docker.types import EndpointConfig

    return EndpointConfig("1.43", aliases=[service])


def await_listener(world: World) -> None:
    """Wait until a request passes through Toxiproxy to the stand-in of the coordinator."""
    deadline = time.monotonic() + 15
    while True:
        try:
            if world.network.probe("worker-1", 1.0).outcome == "ok":
                return
        except CannotRun:
            if time.monotonic() > deadline:
                raise
        if time.monotonic() > deadline:
            raise TimeoutError("no request passes through Toxiproxy")


@pytest.fixture
def foreign(engine: Any) -> Iterator[Any]:
    """A container of the project that belongs to no run of this test."""
    labels = run_labels("another")
    container = engine.containers.run(HELPER, ["python3", "-c", IDLE], labels=labels, detach=True)
    yield container
    container.remove(force=True)


@pytest.fixture
def scene(yard: Yard) -> Callable[..., YardScene]:
    """Return a maker of scenes that aim at worker-1, which holds the task."""

    def make(kind: str, deadline_s: float = 5.0, **params: Any) -> YardScene:
        container = yard.world.containers.of_node("worker-1")
        aim = Target("holder of main", container, "worker-1", "worker-1", JOB, TASK, LEASE, 1)
        action = Action("f", kind, "holder of main", Trigger(), deadline_s, params)
        task = TaskView(TASK, "LEASED", "worker-1", LEASE, 1, 10)
        job = JobView("main", JOB, "RUNNING", task)
        seen = Observation(jobs={"main": job}, events=(claim(LEASE, "worker-1"),))
        return YardScene(action, yard.world, aim, yard.machine, yard.run_id, seen)

    return make


def claim(lease_id: str, node_id: str) -> JsonMap:
    """An event as the coordinator tells it."""
    return {
        "type": "LEASE_CLAIMED",
        "task_id": TASK,
        "lease_id": lease_id,
        "mono_ns": time.monotonic_ns(),
        "data": {"node_id": node_id},
    }


@pytest.fixture(autouse=True, scope="session")
def no_reaper() -> Iterator[None]:
    """Its image cannot be pulled everywhere; what tests make is removed by label."""
    before = {name: os.environ.get(name) for name in TESTCONTAINERS}
    os.environ.update(TESTCONTAINERS)
    yield
    for name, value in before.items():
        os.environ.pop(name) if value is None else os.environ.update({name: value})
