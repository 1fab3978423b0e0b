"""Faults at processes, limits and clocks on real containers: landed, missed, and undone."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import pytest

from chaos.faults import (
    app_crash,
    app_strain,
    clock_jump,
    cpu_starvation,
    kill,
    kill_agent,
    out_of_memory,
    pause,
    stop,
)
from chaos.model import CannotRun, Container, Landed, NoTarget, NotOurs
from chaos.targets.engine import run_labels

pytestmark = pytest.mark.integration

TASK, LEASE = "job-000000000001-00000", "lease-1"
HELPER = "flashruntime/helper:local"
DEAF = "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); signal.sigwait({1})"
AGENT = "import os, signal; os.fork(); signal.pause()"
EAT = "held = [bytearray(b'x') * (1 << 20) for _ in range({mib})]; print(len(held))"
BUSY = "import time\nend = time.monotonic() + 2\nwhile time.monotonic() < end: pass"
PRELOAD = {
    "LD_PRELOAD": "/clock/libfaketimeMT.so.1",
    "DONT_FAKE_MONOTONIC": "1",
    "FAKETIME_CACHE_DURATION": "1",
    "NO_FAKE_STAT": "1",
}


def fire(fault: Any, scene: Any) -> Any:
    """Do as the controller does: promise, fire, ask for the receipt."""
    for action, args in fault.undo(scene):
        scene.promise(action, args)
    return fault.receipt(scene, fault.fire(scene))


def event(kind: str, lease_id: str = LEASE, node: str = "worker-1", **data: Any) -> dict[str, Any]:
    return {
        "type": kind,
        "task_id": TASK,
        "lease_id": lease_id,
        "mono_ns": time.monotonic_ns(),
        "data": {"node_id": node, **data},
    }


def once(kind: str, *words: str, **data: Any) -> Callable[[], list[dict[str, Any]]]:
    """Return what happens at the first wait, and nothing after it."""
    left = [1]
    return lambda: [event(kind, *words, **data)] if left and left.pop() else []


def container_of(yard: Any, scene: Any) -> Any:
    return yard.client.containers.get(scene.aim.container.container_id)


@contextmanager
def beside(yard: Any, service: str, command: list[str], **more: Any) -> Iterator[Container]:
    """A container of the run besides those of the yard."""
    labels = run_labels(yard.run_id) | {"com.docker.compose.service": service}
    made = yard.client.containers.run(
        HELPER, command, hostname=service, labels=labels, detach=True, **{"init": True, **more}
    )
    try:
        yield Container(made.id, service, yard.run_id)
    finally:
        made.remove(force=True)


def aimed(scene: Any, container: Container, kind: str, **params: Any) -> Any:
    made = scene(kind, **params)
    made.aim = replace(made.aim, container=container)
    return made


@pytest.fixture(autouse=True)
def as_before(yard: Any) -> Iterator[None]:
    """Every test finds both workers running."""
    yield
    for service in ("worker-1", "worker-2"):
        yard.world.containers.start(yard.world.containers.service(service))


@pytest.mark.parametrize(
    ("params", "exit_code"),
    [
        ({"via": "host"}, 137),
        ({"signal": "SIGTERM"}, 143),
        ({"via": "host", "process": "main", "signal": "SIGSEGV"}, 139),
        ({"signal": "SIGSEGV"}, None),
    ],
    ids=["host", "term", "segv-main", "segv-first"],
)
def test_a_kill_lands_where_the_engine_tells_of_that_death(
    yard: Any, scene: Any, monkeypatch: Any, params: dict[str, str], exit_code: int | None
) -> None:
    """The first process of a container does not hear a signal that it does not handle."""
    monkeypatch.setattr(kill, "DEATH_TIMEOUT_S", 5.0 if exit_code is not None else 0.3)
    aim = scene("kill", **params)
    receipt = fire(kill.FAULT, aim)
    landed = Landed.MISSED if exit_code is None else Landed.LANDED
    assert (receipt.landed, receipt.evidence["exit_code"]) == (landed, exit_code)
    aim.undo_now()
    assert container_of(yard, aim).status == "running"


@pytest.mark.parametrize("via", ["engine", "host"])
def test_a_paused_container_dies_too_and_is_not_left_paused(
    yard: Any, scene: Any, via: str
) -> None:
    aim = scene("kill", via=via)
    yard.world.containers.pause(aim.aim.container)
    assert fire(kill.FAULT, aim).landed is Landed.LANDED
    aim.undo_now()
    assert container_of(yard, aim).status == "running"


def test_only_a_kill_from_the_host_leaves_the_restart_policy_in_force(
    yard: Any, scene: Any
) -> None:
    again = {"Name": "always"}
    command = ["python3", "-c", "import signal; signal.pause()"]
    with beside(yard, "worker-7", command, restart_policy=again) as container:
        processes = yard.world.processes
        before = processes.state(container)
        aim = aimed(scene, container, "kill", via="host")
        assert fire(kill.FAULT, aim).landed is Landed.LANDED
        assert aim.wait(lambda _: processes.state(container).started_at != before.started_at, 5.0)
        assert processes.state(container).restarts == 1
        aim = aimed(scene, container, "kill", via="engine")
        assert fire(kill.FAULT, aim).landed is Landed.LANDED
        assert not aim.wait(lambda _: processes.state(container).running, 1.0)
        aim.undo_now()
        assert processes.state(container).running


def test_what_is_not_of_the_container_is_never_signalled(yard: Any, foreign: Any) -> None:
    worker = yard.world.containers.of_node("worker-1")
    other = yard.world.processes.state(yard.world.containers.of_node("worker-2")).pid
    with pytest.raises(CannotRun, match="refused"):
        yard.world.processes.signal(worker, other, "SIGKILL")
    with pytest.raises(NotOurs):
        yard.world.processes.signal(Container(foreign.id, "worker-1", "x"), other, "SIGKILL")


def test_a_frozen_worker_lands_by_the_engines_word_and_its_own_silence(
    yard: Any, scene: Any
) -> None:
    aim = scene("pause", min_hold_ms=300)
    aim.coming = once("LEASE_CLAIMED", "lease-2", "worker-2")
    receipt = fire(pause.FAULT, aim)
    assert (receipt.landed, receipt.lost_lease_id) == (Landed.LANDED, LEASE)
    assert [each["name"] for each in receipt.evidence["told"]] == ["pause", "unpause"]
    assert container_of(yard, aim).status == "running"


def test_a_frozen_worker_whose_task_nobody_claims_is_missed(yard: Any, scene: Any) -> None:
    aim = scene("pause", deadline_s=0.3, min_hold_ms=100)
    assert fire(pause.FAULT, aim).landed is Landed.MISSED
    assert container_of(yard, aim).status == "running"


def test_a_pause_is_undone_after_its_target_restarted(yard: Any, scene: Any) -> None:
    aim = scene("pause")
    for action, args in pause.FAULT.undo(aim):
        aim.promise(action, args)
    yard.world.containers.pause(aim.aim.container)
    yard.client.api.kill(aim.aim.container.container_id)
    aim.undo_now()
    aim.undo_now()
    assert container_of(yard, aim).status == "running"


def test_a_frozen_coordinator_answers_nobody(yard: Any, scene: Any) -> None:
    aim = scene("pause", min_hold_ms=300)
    coordinator = yard.world.containers.coordinator()
    aim.aim = replace(aim.aim, container=coordinator, task_id=None, lease_id=None)
    receipt = fire(pause.FAULT, aim)
    assert (receipt.landed, receipt.evidence["probes"]) == (Landed.LANDED, ["timeout", "timeout"])
    assert yard.world.network.probe("worker-1", 2.0).outcome == "ok"


def test_a_notice_that_is_obeyed_lands_and_a_stop_by_force_does_not(yard: Any, scene: Any) -> None:
    aim = scene("stop", grace_s=5)
    receipt = fire(stop.FAULT, aim)
    assert (receipt.landed, receipt.evidence["exit_code"]) == (Landed.LANDED, 143)
    aim.undo_now()
    assert container_of(yard, aim).status == "running"
    with beside(yard, "worker-7", ["python3", "-c", DEAF]) as container:
        aim = aimed(scene, container, "stop", grace_s=1)
        receipt = fire(stop.FAULT, aim)
        assert (receipt.landed, receipt.evidence["exit_code"]) == (Landed.MISSED, 137)


def test_a_restart_lands_where_the_container_was_started_anew(yard: Any, scene: Any) -> None:
    aim = scene("stop", grace_s=5, then_start=True)
    receipt = fire(stop.FAULT, aim)
    assert receipt.landed is Landed.LANDED
    assert receipt.evidence["started_at_after"] != receipt.evidence["started_at"]


@pytest.mark.parametrize(
    ("mib", "landed"), [(150, Landed.LANDED), (1, Landed.MISSED)], ids=["much", "little"]
)
def test_memory_lands_where_the_kernel_killed_for_it(
    yard: Any, scene: Any, mib: int, landed: Landed
) -> None:
    aim = scene("out_of_memory", deadline_s=6.0, room_mib=40)

    def coming() -> list[dict[str, Any]]:
        aim.coming = list
        done = container_of(yard, aim).exec_run(["python3", "-c", EAT.format(mib=mib)])
        return [event("TASK_ATTEMPT_FAILED", exit_code=done.exit_code)]

    aim.coming = coming
    before = yard.world.processes.usage(aim.aim.container).memory_limit_bytes
    receipt = fire(out_of_memory.FAULT, aim)
    assert receipt.landed is landed, receipt.evidence
    after = yard.world.processes.usage(aim.aim.container).memory_limit_bytes
    assert (after or 0) >= min(before or 0, yard.client.info()["MemTotal"]) // 2


def test_limits_are_restored_after_their_target_restarted(yard: Any, scene: Any) -> None:
    aim = scene("cpu_starvation")
    for action, args in cpu_starvation.FAULT.undo(aim):
        aim.promise(action, args)
    container = aim.aim.container
    yard.world.processes.limit_memory(container, 64 << 20)
    yard.world.processes.throttle(container, 0.1)
    yard.client.api.kill(container.container_id)
    yard.client.api.start(container.container_id)
    aim.undo_now()
    aim.undo_now()
    found = yard.client.api.inspect_container(container.container_id)["HostConfig"]
    assert (found["CpuQuota"], found["Memory"] > 64 << 20) == (-1, True)


@pytest.mark.parametrize(
    ("busy", "landed"), [(False, Landed.MISSED), (True, Landed.LANDED)], ids=["idle", "busy"]
)
def test_starvation_lands_where_somebody_had_to_wait(
    yard: Any, scene: Any, busy: bool, landed: Landed
) -> None:
    aim = scene("cpu_starvation", core_percent=10, hold_ms=1500)
    if busy:
        container_of(yard, aim).exec_run(["python3", "-c", BUSY], detach=True)
    receipt = fire(cpu_starvation.FAULT, aim)
    assert receipt.landed is landed, receipt.evidence


@pytest.fixture
def clocked(yard: Any) -> Iterator[Container]:
    """A container whose clock can be set, as the variant of the stack makes it."""
    labels = run_labels(yard.run_id) | {"com.docker.compose.volume": "clock"}
    volume = yard.client.volumes.create(f"{yard.run_id}_clock", labels=labels)
    fill = "cp /usr/lib/*/faketime/libfaketimeMT.so.1 /clock/; echo +0 >/clock/worker-7"
    mounts = [f"{volume.name}:/clock"]
    own = run_labels(yard.run_id)
    yard.client.containers.run(HELPER, ["sh", "-c", fill], volumes=mounts, remove=True, labels=own)
    env = {**PRELOAD, "FAKETIME_TIMESTAMP_FILE": "/clock/worker-7"}
    command = ["python3", "-c", "import signal; signal.pause()"]
    more = {"volumes": mounts, "environment": env, "init": False}
    with beside(yard, "worker-7", command, **more) as container:
        yield container


def test_a_clock_lands_by_what_the_container_reads_and_its_monotonic_one_stays(
    yard: Any, scene: Any, clocked: Container
) -> None:
    aim = aimed(scene, clocked, "clock_jump", offset_s=-7200, hold_ms=100)
    receipt = fire(clock_jump.FAULT, aim)
    assert receipt.landed is Landed.LANDED, receipt.evidence
    assert receipt.evidence["off_during_s"] == pytest.approx(-7200, abs=0.5)
    assert receipt.evidence["monotonic_off_s"] == 0
    assert yard.world.clocks.read(clocked).off_s == pytest.approx(0, abs=0.5)


def test_a_clock_without_the_library_is_missed(
    yard: Any, scene: Any, clocked: Container, monkeypatch: Any
) -> None:
    monkeypatch.setattr(clock_jump, "SETTLE_S", 0.1)
    receipt = fire(clock_jump.FAULT, scene("clock_jump", offset_s=60, hold_ms=100))
    assert (receipt.landed, receipt.evidence["reaches_first"]) == (Landed.MISSED, False)


def test_a_clock_is_set_right_after_its_target_restarted(
    yard: Any, scene: Any, clocked: Container
) -> None:
    aim = aimed(scene, clocked, "clock_jump", offset_s=60)
    for action, args in clock_jump.FAULT.undo(aim):
        aim.promise(action, args)
    yard.world.clocks.set(clocked, 60)
    yard.client.api.kill(clocked.container_id)
    yard.client.api.start(clocked.container_id)
    aim.undo_now()
    assert yard.world.clocks.read(clocked).off_s == pytest.approx(0, abs=0.5)


def test_an_agent_dies_alone_and_the_orphan_that_it_leaves_is_seen(
    yard: Any, scene: Any, monkeypatch: Any
) -> None:
    """The stand-in leaves its child alone, which the runtime's own agent must not."""
    monkeypatch.setattr(kill_agent, "GONE_S", 0.3)
    loop = f'while :; do python3 -c "{AGENT}" agent-stand-in; sleep 0.2; done'
    with beside(yard, "worker-7", ["sh", "-c", loop]) as container:
        aim = aimed(scene, container, "kill_agent", command="agent-stand-in")
        listing = yard.world.processes.listing
        assert aim.wait(lambda _: len(listing(container)) == 4, 5.0)
        receipt = fire(kill_agent.FAULT, aim)
        assert (receipt.landed, receipt.lost_lease_id) == (Landed.LANDED, LEASE)
        assert len(receipt.evidence["left"]) == 1
        assert receipt.evidence["container_went_on"] is True


def test_an_agent_that_is_not_there_is_not_hit(scene: Any) -> None:
    with pytest.raises(NoTarget, match="flashruntime work"):
        fire(kill_agent.FAULT, scene("kill_agent"))


@pytest.mark.parametrize(
    ("mode", "landed"), [("hang", Landed.LANDED), ("flood", Landed.MISSED)], ids=["same", "other"]
)
def test_the_payloads_own_word_is_read_from_the_volume(
    yard: Any, scene: Any, mode: str, landed: Landed
) -> None:
    yard.world.stack._helper.start()
    found = yard.client.containers.list(filters={"label": "dev.flashruntime.role=helper"})
    (helper,) = [c for c in found if c.labels.get("dev.flashruntime.run") == yard.run_id]
    write = (
        "import pathlib; d = pathlib.Path('/touch/.evidence'); d.mkdir(exist_ok=True); "
        f'(d / \'{LEASE}.json\').write_text(\'{{"mode": "{mode}", "amount": 5}}\')'
    )
    assert helper.exec_run(["python3", "-c", write]).exit_code == 0
    crash = scene("app_crash", mode="hang")
    crash.coming = once("TASK_ATTEMPT_FAILED", evidence={"ended_by": "hung"})
    assert fire(app_crash.FAULT, crash).landed is landed
    strain = scene("app_strain", mode="hang", at_least=5)
    strain.coming = once("TASK_COMMIT_ACCEPTED")
    assert fire(app_strain.FAULT, strain).landed is landed
