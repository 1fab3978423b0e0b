"""Faults on paths and packets on real containers: landed, missed, undone after a restart."""

import json
import os
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import pytest

from chaos import registry
from chaos.faults import lost_answer, toxiproxy_down
from chaos.model import CannotRun, Landed, Target, Undo
from chaos.ports import Flow, Rule, RunSpec, Toxic
from chaos.targets.containers import RunContainers
from chaos.targets.engine import run_labels
from chaos.targets.proxies import ToxiproxyServer, server_of

pytestmark = pytest.mark.integration

TASK, LEASE = "job-000000000001-00000", "lease-1"
TOXIPROXY = os.environ.get("FLASHML_TOXIPROXY_IMAGE", "flashruntime/toxiproxy:local")
LANDING: dict[str, dict[str, Any]] = {
    "latency": {"latency_ms": 200, "jitter_ms": 40, "stream": "both"},
    "bandwidth": {"kb_per_s": 100},
    "slicer": {"slice_bytes": 20, "pause_us": 40_000},
    "timeout": {"stream": "downstream"},
    "reset_peer": {},
    "down": {},
    "one_way_partition": {"flow": "in"},
    "loss": {"percent": 30},
}
TOOTHLESS: dict[str, dict[str, Any]] = {
    "bandwidth": {"kb_per_s": 1_000_000},
    "slicer": {"slice_bytes": 10_000, "pause_us": 40_000},
    "loss": {"percent": 0},
}


def fire(fault: Any, scene: Any) -> Any:
    """Do as the controller does: promise, fire, ask for the receipt."""
    for action, args in fault.undo(scene):
        scene.promise(action, args)
    return fault.receipt(scene, fault.fire(scene))


def fault_of(kind: str) -> Any:
    return registry.faults()[kind]


def event(kind: str, lease_id: str, node_id: str = "worker-1") -> dict[str, Any]:
    """An event as the coordinator tells it."""
    return {
        "type": kind,
        "task_id": TASK,
        "lease_id": lease_id,
        "mono_ns": time.monotonic_ns(),
        "data": {"node_id": node_id},
    }


def say(yard: Any, service: str, **fields: Any) -> None:
    """Let a container write a line to its log."""
    container = yard.client.containers.get(yard.world.containers.service(service).container_id)
    line = json.dumps({"mono_ns": time.monotonic_ns(), **fields})
    done = container.exec_run(
        ["python3", "-c", f"open('/proc/1/fd/1', 'w').write({line + chr(10)!r})"], user="root"
    )
    assert done.exit_code == 0, done.output


@pytest.fixture(autouse=True)
def as_before(yard: Any) -> Any:
    """Every test leaves a path that is open, and a worker in its network without a rule."""
    yield
    world = yard.world
    world.containers.start(world.containers.proxy())
    worker = world.containers.service("worker-1")
    world.packets.attach(worker, [{"network": "edge", "aliases": ["worker-1"]}])
    world.packets.clear(worker)
    deadline = time.monotonic() + 10
    while time.monotonic() < deadline:
        with suppress(CannotRun):
            if world.network.canary("worker-1", 1.0).outcome == "ok":
                return
    raise TimeoutError("the path of worker-1 did not open again")


@pytest.mark.parametrize(("kind", "params"), LANDING.items(), ids=list(LANDING))
def test_a_fault_on_a_path_lands_and_leaves_it_open(
    yard: Any, scene: Any, kind: str, params: dict[str, Any]
) -> None:
    receipt = fire(fault_of(kind), scene(kind, deadline_s=20.0, hold_ms=50, **params))
    assert receipt.landed is Landed.LANDED, dict(receipt.evidence)
    assert yard.world.network.toxics() == {}
    assert yard.machine.audit(yard.run_id).chains == ()


@pytest.mark.parametrize(("kind", "params"), TOOTHLESS.items(), ids=list(TOOTHLESS))
def test_a_fault_that_nobody_can_feel_is_missed(
    scene: Any, kind: str, params: dict[str, Any]
) -> None:
    """It is switched on and read back all the same."""
    receipt = fire(fault_of(kind), scene(kind, deadline_s=20.0, hold_ms=10, **params))
    assert receipt.landed is Landed.MISSED, receipt.evidence


@pytest.mark.parametrize("kind", ["timeout", "reset_peer", "down", "one_way_partition"])
def test_a_fault_that_does_not_bite_is_missed(
    yard: Any, scene: Any, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    network, packets = yard.world.network, yard.world.packets
    add, drop = network.add, packets.drop
    idle = {"latency": 0}
    monkeypatch.setattr(
        network,
        "add",
        lambda path, toxic: add(path, Toxic(toxic.name, "latency", "upstream", idle)),
    )
    monkeypatch.setattr(network, "switch", lambda path, *, on: None)
    monkeypatch.setattr(
        packets, "drop", lambda whom, rule: drop(whom, Rule(rule.name, rule.flow, 0.0001))
    )
    receipt = fire(fault_of(kind), scene(kind, deadline_s=20.0, hold_ms=10, **LANDING[kind]))
    assert receipt.landed is Landed.MISSED, receipt.evidence


@pytest.mark.parametrize(
    ("claims", "landed"), [(True, Landed.LANDED), (False, Landed.MISSED)], ids=["claim", "none"]
)
def test_a_partition_lands_when_another_node_claims_while_it_is_out(
    yard: Any, scene: Any, claims: bool, landed: Landed
) -> None:
    """The container is back in its network with its name, whatever came of it."""
    aim = scene("partition", deadline_s=20.0 if claims else 3.0, min_hold_ms=300)
    began = time.monotonic()

    def coming() -> list[Any]:
        is_due = claims and time.monotonic() > began + 0.5 and len(aim.seen.events) == 1
        out = not yard.world.packets.attachments(aim.aim.container)
        return [event("LEASE_CLAIMED", "lease-2", "worker-2")] if is_due and out else []

    aim.coming = coming
    receipt = fire(fault_of("partition"), aim)
    assert (receipt.landed, receipt.lost_lease_id) == (landed, LEASE), receipt.evidence
    (back,) = yard.world.packets.attachments(aim.aim.container)
    assert back["network"] == "edge"
    assert "worker-1" in back["aliases"]


@pytest.mark.parametrize(
    ("call", "happens", "heard"),
    [
        pytest.param("claim", "LEASE_CLAIMED", "lease_claimed", marks=pytest.mark.bench_stress),
        ("complete", "TASK_COMMIT_ACCEPTED", "attempt_accepted"),
    ],
)
def test_an_answer_is_lost_on_the_way(
    yard: Any, scene: Any, call: str, happens: str, heard: str
) -> None:
    """A request that waits for its answer is cut off, and the next one gets through."""
    lease_id = "lease-2" if call == "claim" else LEASE
    aim = scene("lost_answer", deadline_s=20.0, call=call, latency_ms=1500)
    ended: list[str] = []
    network = yard.world.network

    def coming() -> list[Any]:
        if len(aim.seen.events) == 1:
            asking = threading.Thread(
                target=lambda: ended.append(network.canary("worker-1", 5.0).outcome)
            )
            asking.start()
            time.sleep(0.5)
            return [event(happens, lease_id)]
        if network.listeners() and not ended[1:]:
            ended.append("heard")
            say(yard, "worker-1", event=heard, lease_id=lease_id)
        return []

    aim.coming = coming
    receipt = fire(lost_answer.FAULT, aim)
    assert receipt.landed is Landed.LANDED, dict(receipt.evidence)
    assert ended[0] in {"closed", "reset"}
    assert network.toxics() == {}


def test_without_a_call_no_answer_is_lost(yard: Any, scene: Any) -> None:
    receipt = fire(lost_answer.FAULT, scene("lost_answer", deadline_s=1.0, call="complete"))
    assert receipt.landed is Landed.MISSED
    assert yard.world.network.canary("worker-1", 2.0).outcome == "ok"


def proxied(yard: Any, scene: Any) -> Any:
    """Aim at Toxiproxy itself."""
    aim = scene("toxiproxy_down", deadline_s=30.0, hold_ms=100)
    aim.aim = Target("toxiproxy", container=yard.world.containers.proxy())
    return aim


def test_147_a_toxiproxy_that_was_killed_is_back_with_its_listeners(yard: Any, scene: Any) -> None:
    """They come from the file in its image; toxics of before are named as lost."""
    yard.world.network.add("worker-2", Toxic("t", "latency", "downstream", {"latency": 7}))
    receipt = fire(toxiproxy_down.FAULT, proxied(yard, scene))
    assert receipt.landed is Landed.LANDED, dict(receipt.evidence)
    assert receipt.evidence["toxics_lost"] == ["worker-2"]
    assert receipt.evidence["listeners"] == receipt.evidence["listeners_again"]
    assert yard.world.network.toxics() == {}


def test_a_toxiproxy_that_lives_on_is_missed(
    yard: Any, scene: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(toxiproxy_down, "DEATH_TIMEOUT_S", 0.3)
    monkeypatch.setattr(yard.world.containers, "kill", lambda container: None)
    assert fire(toxiproxy_down.FAULT, proxied(yard, scene)).landed is Landed.MISSED


def test_toxiproxy_is_started_by_its_undo(yard: Any, scene: Any) -> None:
    aim = proxied(yard, scene)
    for action, args in toxiproxy_down.FAULT.undo(aim):
        aim.promise(action, args)
    yard.world.containers.kill(yard.world.containers.proxy())
    aim.undo_now()
    aim.undo_now()
    assert yard.world.containers.running(yard.world.containers.proxy())


def test_a_closed_listener_is_opened_by_its_undo(yard: Any, scene: Any) -> None:
    """Also after Toxiproxy was started again, which opens it by itself."""
    aim = scene("down")
    for action, args in fault_of("down").undo(aim):
        aim.promise(action, args)
    yard.world.network.switch("worker-1", on=False)
    assert yard.world.network.canary("worker-1", 1.0).outcome == "refused"
    aim.undo_now()
    assert yard.world.network.canary("worker-1", 1.0).outcome == "ok"
    yard.world.network.switch("worker-1", on=False)
    container = yard.client.containers.get(yard.world.containers.proxy().container_id)
    container.restart(timeout=1)
    aim.undo_now()
    again = yard.machine.world(RunSpec(yard.run_id, workers=1)).network
    assert "worker-1" in again.listeners()


def test_a_listener_that_is_gone_comes_back_with_its_undo(yard: Any, scene: Any) -> None:
    """A harness that dies while it makes one anew leaves none."""
    aim = scene("down")
    for action, args in fault_of("down").undo(aim):
        aim.promise(action, args)
    yard.world.network._server._call("delete", "/proxies/worker-1")
    aim.undo_now()
    assert yard.machine.world(RunSpec(yard.run_id, workers=1)).network.listeners()


def test_a_rule_that_is_left_is_seen_by_the_audit_and_cleared_by_its_undo(
    yard: Any, scene: Any
) -> None:
    """Whether the target was started again, which leaves no rule, or not."""
    aim, packets = scene("loss", percent=50), yard.world.packets
    for action, args in fault_of("loss").undo(aim):
        aim.promise(action, args)
    worker = aim.aim.container
    packets.drop(worker, Rule("f", Flow.BOTH, 0.5))
    audit = yard.machine.audit(yard.run_id)
    assert [name.partition("/")[0] for name in audit.chains] == ["worker-1"]
    assert not audit.clean
    aim.undo_now()
    aim.undo_now()
    assert yard.machine.audit(yard.run_id).chains == ()
    packets.drop(worker, Rule("f", Flow.OUT))
    restart(yard, worker)
    aim.undo_now()
    assert packets.counted(worker, "f") is None


def test_a_partition_is_undone_after_its_target_restarted(yard: Any, scene: Any) -> None:
    aim, packets = scene("partition"), yard.world.packets
    for action, args in fault_of("partition").undo(aim):
        aim.promise(action, args)
    worker = aim.aim.container
    packets.detach(worker)
    assert packets.canaries(worker, "worker-1", 1, 0.5)[0].outcome != "ok"
    restart(yard, worker)
    aim.undo_now()
    aim.undo_now()
    assert packets.canaries(worker, "worker-1", 1, 2.0)[0].outcome == "ok"


def restart(yard: Any, container: Any) -> None:
    yard.client.api.kill(container.container_id)
    yard.client.api.wait(container.container_id)
    yard.client.api.start(container.container_id)


def test_undos_of_paths_in_a_run_that_is_gone_are_harmless(yard: Any) -> None:
    for action, args in (
        ("open_listener", {"listener": "worker-1"}),
        ("clear_packets", {"service": "worker-1"}),
        ("reconnect", {"service": "worker-1", "attachments": []}),
    ):
        yard.machine.undo(Undo("u", "no-such-run", None, action, args))


@pytest.fixture
def second(engine: Any) -> Iterator[ToxiproxyServer]:
    """The Toxiproxy of another run."""
    labels = run_labels("second") | {"com.docker.compose.service": "toxiproxy"}
    ports = {"8474/tcp": ("127.0.0.1", None)}
    container = engine.containers.run(TOXIPROXY, labels=labels, ports=ports, detach=True)
    server = server_of(RunContainers(engine, "second"))
    try:
        deadline = time.monotonic() + 10
        while time.monotonic() < deadline:
            with suppress(CannotRun):
                server.version()
                break
        yield server
    finally:
        container.remove(force=True)


def test_149_two_controllers_in_one_process_talk_to_their_own_servers(
    yard: Any, second: ToxiproxyServer
) -> None:
    """toxiproxy-python keeps one address for all: the second one would take it over."""
    first = yard.world.network
    first.add("worker-1", Toxic("ours", "latency", "downstream", {"latency": 7}))
    second.add("worker-2", Toxic("theirs", "latency", "downstream", {"latency": 7}))
    assert list(first.toxics()) == ["worker-1"]
    assert list(second.toxics()) == ["worker-2"]
    first.remove("worker-1", "ours")
    assert list(second.toxics()) == ["worker-2"]


def test_151_a_toxic_twice_and_a_missing_one_are_told_by_name(yard: Any) -> None:
    """The same one again changes nothing; another one of that name is refused."""
    network = yard.world.network
    network.add("worker-1", Toxic("t", "latency", "downstream", {"latency": 7}))
    network.add("worker-1", Toxic("t", "latency", "downstream", {"latency": 7}))
    with pytest.raises(CannotRun, match="toxic t on worker-1"):
        network.add("worker-1", Toxic("t", "latency", "upstream", {"latency": 7}))
    network.remove("worker-1", "t")
    network.remove("worker-1", "t")
    assert network.toxics() == {}


def test_153_a_second_controller_leaves_a_request_in_flight_alone(yard: Any) -> None:
    """Listeners come from a file: nothing creates or compares them anew."""
    half = (
        "import socket, time; s = socket.create_connection(('toxiproxy', 8001), 5); "
        "s.sendall(b'GET /healthz HTTP/1.1\\r\\n'); time.sleep(1.0); "
        "s.sendall(b'Host: x\\r\\n\\r\\n'); print(s.recv(100).decode().splitlines()[0])"
    )
    worker = yard.client.containers.get(yard.world.containers.service("worker-1").container_id)
    said: list[str] = []
    asking = threading.Thread(
        target=lambda: said.append(worker.exec_run(["python3", "-c", half]).output.decode())
    )
    asking.start()
    second = yard.machine.world(RunSpec(yard.run_id, workers=1)).network
    deadline = time.monotonic() + 0.8
    while time.monotonic() < deadline:
        assert "worker-1" in second.listeners()
        second.add("worker-2", Toxic("t", "latency", "downstream", {"latency": 7}))
        second.remove("worker-2", "t")
    asking.join(10)
    assert "200" in said[0]
