"""Damage and closed volumes on real ones: under stand-ins, and under a real coordinator."""

import hashlib
import json
import os
import time
import uuid
from collections.abc import Iterator
from typing import Any

import pytest

from chaos.alive import mark
from chaos.faults import (
    delete,
    fill_disk,
    flip_bits,
    foreign_file,
    garbage_manifest,
    no_permission,
    read_only,
    roll_back,
    swap,
    truncate,
    zero,
)
from chaos.harm import artifacts
from chaos.model import Action, Landed, Observation, Target, Trigger, Undo
from chaos.ports import RunSpec
from chaos.ports.disks import Volume
from chaos.targets.engine import run_labels
from chaos.targets.machine import DockerMachine

pytestmark = pytest.mark.integration

JOB, TASK, LEASE = "job-000000000001", "job-000000000001-00000", "lease-1"
IMAGE = os.environ.get("FLASHML_RUNTIME_IMAGE", "flashruntime/runtime:local")
HELPER = os.environ.get("FLASHML_HELPER_IMAGE", "flashruntime/helper:local")
LIMIT = {"type": "tmpfs", "device": "tmpfs", "o": "size=8m,uid=10001,gid=10001,mode=0700"}
STEPS = (10, 20, 30)
FOR_CHECKPOINTS = [
    flip_bits.FAULT,
    truncate.FAULT,
    delete.FAULT,
    zero.FAULT,
    swap.FAULT,
    roll_back.FAULT,
    garbage_manifest.FAULT,
    foreign_file.FAULT,
]
FOR_ARTIFACTS = FOR_CHECKPOINTS[:6]
LONG = pytest.mark.bench_stress


def first_quick(faults: list[Any], quick: set[str]) -> list[Any]:
    """Return all of them, those that differ from the others in bytes alone as long ones."""
    return [
        pytest.param(each, id=each.kind, marks=() if each.kind in quick else LONG)
        for each in faults
    ]


CLOSINGS = [
    (fill_disk.FAULT, Volume.CHECKPOINTS, "ENOSPC"),
    (fill_disk.FAULT, Volume.ARTIFACTS, "ENOSPC"),
    (fill_disk.FAULT, Volume.LEDGER, "ENOSPC"),
    (read_only.FAULT, Volume.CHECKPOINTS, "EROFS"),
    (no_permission.FAULT, Volume.ARTIFACTS, "EACCES"),
]


def fire(fault: Any, scene: Any) -> Any:
    """Do as the controller does: promise, fire, ask for the receipt."""
    for action, args in fault.undo(scene):
        scene.promise(action, args)
    return fault.receipt(scene, fault.fire(scene))


def claim(lease_id: str, node_id: str) -> dict[str, Any]:
    told = {"type": "LEASE_CLAIMED", "task_id": TASK, "lease_id": lease_id}
    return {**told, "mono_ns": time.monotonic_ns(), "data": {"node_id": node_id}}


def manifest(step: int, parts: dict[str, bytes]) -> str:
    """Seal a manifest the way the runtime does."""
    listed = [
        {"key": key, "sha256": hashlib.sha256(data).hexdigest(), "size_bytes": len(data)}
        for key, data in parts.items()
    ]
    content: dict[str, Any] = {"step": step, "attempt_id": LEASE, "parts": listed}
    content["manifest_id"] = f"ckpt-{step}"
    canonical = json.dumps(content, sort_keys=True, separators=(",", ":"))
    return json.dumps({**content, "digest": hashlib.sha256(canonical.encode()).hexdigest()})


def put_tree(yard: Any) -> None:
    """Put committed checkpoints of two parts each on the volume, in place of what is there."""
    root = f"/touch/{JOB}/{TASK}"
    code = [f"import pathlib, shutil; r = pathlib.Path({root!r})"]
    code += ["shutil.rmtree(r, ignore_errors=True)"]
    for step in STEPS:
        parts = {f"state-{n}": f"{n} of {step}".encode() * 99 for n in (0, 1)}
        code += [f"d = r / 'step-{step:06}'; d.mkdir(parents=True)"]
        code += [f"(d / {key!r}).write_bytes({data!r})" for key, data in parts.items()]
        code += [f"(d / 'manifest.json').write_text({manifest(step, parts)!r})"]
    yard.world.stack._helper.start()
    labels = [f"dev.flashruntime.run={yard.run_id}", "dev.flashruntime.role=helper"]
    (helper,) = yard.client.containers.list(filters={"label": labels})
    done = helper.exec_run(["python3", "-c", "\n".join(code)])
    assert done.exit_code == 0, done.output


def valid_steps(yard: Any) -> set[int]:
    tree = yard.world.files.tree(JOB, TASK)
    return {found.step for found in tree.checkpoints if found.state == "valid"}


@pytest.fixture
def running(yard: Any) -> Iterator[None]:
    """Whatever a test does, the next one finds its worker running."""
    put_tree(yard)
    yield
    yard.world.containers.start(yard.world.containers.service("worker-1"))


@pytest.mark.parametrize("fault", first_quick(FOR_CHECKPOINTS, {"roll_back", "foreign_file"}))
@pytest.mark.usefixtures("running")
def test_damage_under_a_frozen_holder_lands_and_its_undo_does_not_mind_a_restart(
    yard: Any, scene: Any, fault: Any
) -> None:
    depth = 1 if fault is foreign_file.FAULT else 2
    aim = scene(fault.kind, choice=11, depth=depth)
    aim.coming = lambda: [claim("lease-2", "worker-2")]
    receipt = fire(fault, aim)
    assert (receipt.landed, receipt.lost_lease_id) == (Landed.LANDED, LEASE), receipt
    evidence = receipt.evidence
    assert evidence["frozen_ns"] < evidence["at_ns"] < evidence["killed_ns"]
    assert valid_steps(yard) == ({10, 20, 30} if fault is foreign_file.FAULT else {10})
    container = yard.client.containers.get(aim.aim.container.container_id)
    assert container.attrs["State"]["ExitCode"] == 137
    container.start()
    aim.undo_now()
    container.reload()
    assert container.status == "running"


def test_what_is_killed_while_it_is_frozen_does_nothing_more(yard: Any) -> None:
    """A child of the first process would go on for a moment when the engine thaws and ends it."""
    code = (
        "import os, time\n"
        "if os.fork(): time.sleep(99)\n"
        "while True: open('/tmp/count', 'a').write('x')\n"
    )
    labels = run_labels(yard.run_id) | {"com.docker.compose.service": "worker-3"}
    busy = yard.client.containers.run(HELPER, ["python3", "-c", code], labels=labels, detach=True)
    try:
        containers = yard.world.containers
        aim, deadline = containers.service("worker-3"), time.monotonic() + 10
        while b"x" not in busy.exec_run(["cat", "/tmp/count"]).output:
            assert time.monotonic() < deadline
        containers.get_ready_to_kill()
        containers.pause(aim)
        before = written(busy)
        began_ns = time.monotonic_ns()
        containers.kill_frozen(aim)
        assert containers.wait_death(aim, began_ns, 10.0) is not None
        assert written(busy) == before
    finally:
        busy.remove(force=True)


def written(container: Any) -> int:
    """Return the size of its file, which can be read of one that is frozen or dead, too."""
    _, told = container.get_archive("/tmp/count")
    return int(told["size"])


@pytest.mark.parametrize("fault", first_quick(FOR_CHECKPOINTS, {"swap"}))
@pytest.mark.usefixtures("running")
def test_with_too_few_checkpoints_damage_is_missed_and_the_holder_goes_on(
    yard: Any, scene: Any, fault: Any
) -> None:
    aim = scene(fault.kind, choice=11, depth=len(STEPS) + 1)
    receipt = fire(fault, aim)
    assert (receipt.landed, receipt.lost_lease_id) == (Landed.MISSED, None)
    assert valid_steps(yard) == {*STEPS}
    container = yard.client.containers.get(aim.aim.container.container_id)
    assert container.status == "running"


@pytest.mark.parametrize("fault", [fill_disk.FAULT, read_only.FAULT], ids=lambda f: f.kind)
def test_a_volume_on_the_disk_of_the_machine_is_never_closed(
    yard: Any, scene: Any, fault: Any
) -> None:
    aim = scene(fault.kind, volume="checkpoints", hold_ms=1)
    receipt = fire(fault, aim)
    assert receipt.landed is Landed.MISSED
    assert "larger" in receipt.evidence["reason"]
    assert yard.world.disks.probe(Volume.CHECKPOINTS).errno is None


class Store:
    """A real coordinator on volumes of 8 MiB, and a scene about one of its jobs."""

    def __init__(self, engine: Any, run_id: str) -> None:
        self.engine, self.run_id = engine, run_id
        self.machine = DockerMachine()
        limits = {each.value: 8 for each in Volume}
        self.world = self.machine.world(RunSpec(run_id, 1, limits_mib=limits))
        self.outputs: list[dict[str, str]] = []

    def start(self) -> None:
        labels = run_labels(self.run_id)
        for name in Volume:
            named = labels | {"com.docker.compose.volume": name.value}
            volume = f"{self.run_id}_{name}"
            self.engine.volumes.create(volume, labels=named, driver_opts=LIMIT)
        app = ["uvicorn", "flashruntime.service.app:app", "--host", "0.0.0.0"]  # noqa: S104
        places = ("ledger", "artifacts")
        self.container = self.engine.containers.run(
            IMAGE,
            [*app, "--http", "flashruntime.service.wire:BoundedHttp"],
            detach=True,
            user="10001:10001",
            labels=labels | {"com.docker.compose.service": "coordinator"},
            environment={"FLASHML_ALLOW_OPEN": "1"},
            ports={"8000/tcp": ("127.0.0.1", None)},
            volumes=[f"{self.run_id}_{name}:/var/lib/flashruntime/{name}" for name in places],
        )
        self.world.disks.probe(Volume.CHECKPOINTS)
        self.await_ready()

    def await_ready(self) -> None:
        """Wait until it answers; its port is another one after a restart."""
        self.world = self.machine.world(RunSpec(self.run_id, 1, limits_mib={"ledger": 8}))
        deadline = time.monotonic() + 30
        while not self.world.runtime.ready():
            assert time.monotonic() < deadline, self.container.logs()
            time.sleep(0.1)

    def hand_in(self) -> None:
        """Upload two outputs, as accepted ones of the job."""
        self.outputs = []
        for number in range(2):
            data = uuid.uuid4().bytes * (8192 + number)
            digest, key = hashlib.sha256(data).hexdigest(), f"mine/{uuid.uuid4().hex}"
            assert self.world.runtime.store(key, data).status == 200
            self.outputs.append({"key": key, "sha256": digest})

    def whole(self) -> list[bool]:
        found = (self.world.runtime.fetch(each["key"]) for each in self.outputs)
        return [got == each["sha256"] for got, each in zip(found, self.outputs, strict=True)]

    def aim(self, make: Any, kind: str, target: str, **params: Any) -> Any:
        """Return a scene on this store."""
        aim = make(kind)
        commit = {
            "type": "TASK_COMMIT_ACCEPTED",
            "task_id": TASK,
            "data": {"outputs": self.outputs},
        }
        aim.action = Action("f", kind, target, Trigger(), 30.0, params)
        aim.aim = Target(target, job_id=JOB, task_id=TASK)
        aim.seen = Observation(events=(commit,))
        aim.world, aim.machine, aim.run_id = self.world, self.machine, self.run_id
        return aim


@pytest.fixture(scope="module")
def store(engine: Any) -> Iterator[Store]:
    run_id = f"test-{uuid.uuid4().hex[:8]}"
    found = Store(engine, run_id)
    alive = mark(run_id)
    try:
        found.start()
        yield found
    finally:
        found.machine.undo(Undo("stack", run_id, None, "stack_down"))
        if alive is not None:
            alive.close()


@pytest.mark.parametrize("fault", first_quick(FOR_ARTIFACTS, {"delete", "swap"}))
def test_a_damaged_artifact_lands_is_refused_by_hash_and_an_upload_heals_it(
    store: Store, scene: Any, fault: Any
) -> None:
    store.hand_in()
    aim = store.aim(scene, fault.kind, "artifacts of main", choice=5)
    receipt = fire(fault, aim)
    assert receipt.landed is Landed.LANDED, receipt
    for file in receipt.evidence["rotted"]:
        assert file["before_sha256"] == file["sha256"] != file["after_sha256"]
    hit = [each["sha256"] for each in receipt.evidence["rotted"]]
    assert store.whole() == [each["sha256"] not in hit for each in store.outputs]
    aim.undo_now()
    assert store.whole() == [True, True]


def test_an_artifact_that_is_not_in_the_store_is_missed(store: Store, scene: Any) -> None:
    store.outputs = [{"key": "outputs/none", "sha256": "0" * 64}]
    aim = store.aim(scene, "zero", "artifacts of main", choice=5)
    assert fire(zero.FAULT, aim).landed is Landed.MISSED
    aim.undo_now()


@pytest.mark.parametrize(
    ("fault", "volume", "errno"),
    [
        CLOSINGS[1],
        *CLOSINGS[3:],
        *(pytest.param(*each, marks=LONG) for each in (CLOSINGS[0], CLOSINGS[2])),
    ],
)
def test_a_closed_volume_lands_by_the_writes_that_fail_and_is_open_after_the_fault(
    store: Store, scene: Any, fault: Any, volume: Volume, errno: str
) -> None:
    aim = store.aim(scene, fault.kind, "task of main", volume=volume, hold_ms=600)
    receipt = fire(fault, aim)
    evidence = receipt.evidence
    assert receipt.landed is Landed.LANDED, receipt
    writes = [evidence[name]["errno"] for name in ("before", "first", "last", "after")]
    assert writes == [None, errno, errno, None]
    if volume is not Volume.CHECKPOINTS:
        statuses = {answer["status"] for answer in evidence["canary_during"]}
        assert statuses <= {200, 503}
        assert evidence["canary_after"]["status"] == 200
    if volume is Volume.ARTIFACTS:
        assert statuses == {503}
        assert all(answer["retry_after_s"] > 0 for answer in evidence["canary_during"])


def test_a_volume_in_which_somebody_writes_all_the_time_is_not_closed_and_missed(
    store: Store, scene: Any, monkeypatch: Any
) -> None:
    """The coordinator holds its lock file open: the kernel refuses the remount."""
    monkeypatch.setattr(read_only, "TRY_S", 0.2)
    aim = store.aim(scene, "read_only", "task of main", volume="artifacts", hold_ms=1)
    receipt = fire(read_only.FAULT, aim)
    assert receipt.landed is Landed.MISSED
    assert receipt.evidence["closed"]["errno"] == "EBUSY"


@pytest.mark.parametrize(
    ("fault", "volume", "errno"),
    [CLOSINGS[3], *(pytest.param(*each, marks=LONG) for each in (CLOSINGS[1], CLOSINGS[4]))],
)
def test_a_volume_is_opened_again_though_helpers_and_coordinator_were_restarted(
    store: Store, scene: Any, fault: Any, volume: Volume, errno: str
) -> None:
    aim = store.aim(scene, fault.kind, "task of main", volume=volume, hold_ms=1)
    for action, args in fault.undo(aim):
        aim.promise(action, args)
    fault.close(store.world.disks, volume)
    assert store.world.disks.probe(volume).errno == errno
    labels = [f"dev.flashruntime.run={store.run_id}", "dev.flashruntime.role=remount"]
    for helper in store.engine.containers.list(filters={"label": labels}):
        helper.remove(force=True)
    if volume is Volume.ARTIFACTS:
        store.container.restart(timeout=2)
    for _ in range(2):
        for undo in aim.promised:
            DockerMachine().undo(undo)
    assert store.world.disks.probe(volume).errno is None
    store.await_ready()


@LONG
def test_artifacts_are_whole_again_though_the_coordinator_was_restarted(
    store: Store, scene: Any, monkeypatch: Any
) -> None:
    monkeypatch.setattr(artifacts, "FIND_S", 0.1)
    store.hand_in()
    aim = store.aim(scene, "swap", "artifacts of main", choice=5, found_by="scrub")
    receipt = fire(swap.FAULT, aim)
    assert receipt.landed is Landed.LANDED
    store.await_ready()
    assert store.whole() == [False, False]
    for undo in reversed(aim.promised):
        DockerMachine().undo(undo)
    assert store.whole() == [True, True]


def test_undos_of_volumes_of_a_run_that_is_gone_are_harmless(engine: Any) -> None:
    for action, args in (
        ("drain_volume", {"volume": "ledger"}),
        ("volume_writable", {"volume": "checkpoints"}),
        ("restore_artifacts", {"digests": ["0" * 64]}),
    ):
        DockerMachine().undo(Undo("u", "no-such-run", "f", action, args))
