"""Faults at processes and clocks on in-memory twins: what lands, what misses, what contradicts."""

import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from chaos import registry
from chaos.controller import Controller, Run
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
from chaos.model import (
    Action,
    JobRequest,
    JobView,
    JsonMap,
    Landed,
    NoTarget,
    Observation,
    Target,
    TaskView,
    Trigger,
    Undo,
)
from chaos.ports import Checkpoint, RunSpec
from chaos.ports.processes import ClockReading, Process, Usage
from chaos.schedule import Experiment, make_plan
from chaos.targets import stack
from chaos.testing import FakeMachine

RUN, TASK, LEASE = "run-1", "job-1-00000", "lease-1"


@dataclass
class Scene:
    """A scene that aims at one container; each wait lets `coming` happen first."""

    action: Action
    machine: FakeMachine
    aim: Target
    seen: Observation
    coming: Callable[[], list[JsonMap]] = field(default=lambda: [])
    promised: list[Undo] = field(default_factory=list)

    @property
    def world(self) -> Any:
        return self.machine.worlds[RUN]

    def target(self) -> Target:
        return self.aim

    def observation(self) -> Observation:
        return self.seen

    def wait(self, condition: Callable[[Observation], bool], timeout_s: float) -> bool:
        self.seen = replace(self.seen, events=(*self.seen.events, *self.coming()))
        return condition(self.seen)

    def remaining_s(self) -> float:
        return 5.0

    def promise(self, action: str, args: JsonMap) -> None:
        self.promised.append(Undo(f"u{len(self.promised)}", RUN, "f", action, args))

    def undo_now(self) -> None:
        for undo in self.promised:
            self.machine.undo(undo)

    def note(self, text: str, data: JsonMap) -> None:
        pass


@pytest.fixture
def stage(machine: FakeMachine) -> Callable[..., Scene]:
    world = machine.world(RunSpec(RUN, 2))
    machine.worlds = {RUN: world}  # type: ignore[attr-defined]

    def make(target: str = "worker-1", **params: Any) -> Scene:
        action = Action("f", "kind", target, Trigger(), 5.0, params)
        if target == "coordinator":
            aim = Target(target, world.containers.coordinator())
        else:
            container = world.containers.of_node(target)
            aim = Target(target, container, target, target, "job-1", TASK, LEASE, 1)
        task = TaskView(TASK, "LEASED", "worker-1", LEASE, 1, 10)
        jobs = {"main": JobView("main", "job-1", "RUNNING", task)}
        return Scene(action, machine, aim, Observation(jobs=jobs, events=(event("LEASE_CLAIMED"),)))

    return make


def event(kind: str, lease_id: str = LEASE, node: str = "worker-1", **data: Any) -> JsonMap:
    return {
        "type": kind,
        "task_id": TASK,
        "lease_id": lease_id,
        "mono_ns": time.monotonic_ns(),
        "data": {"node_id": node, **data},
    }


def fire(fault: Any, scene: Scene) -> Any:
    for action, args in fault.undo(scene):
        scene.promise(action, args)
    return fault.receipt(scene, fault.fire(scene))


def processes(scene: Scene) -> Any:
    return scene.machine.processes[RUN]


def test_a_kill_from_the_host_lands_on_the_first_process(stage: Any) -> None:
    scene = stage(via="host")
    receipt = fire(kill.FAULT, scene)
    assert (receipt.landed, receipt.lost_lease_id) == (Landed.LANDED, LEASE)
    assert processes(scene).signals == [("worker-1", 1000, "SIGKILL")]
    assert (receipt.evidence["pid"], receipt.evidence["pid_after"]) == (1000, 0)
    scene.undo_now()
    assert scene.machine.systems[RUN].down == set()


def test_below_an_init_the_main_process_is_the_one_to_hit(stage: Any) -> None:
    scene = stage(via="host", process="main")
    listing = (Process(1000, 1, 1, "init"), Process(1001, 7, 1000, "agent"))
    processes(scene).listings["worker-1"] = [listing]
    assert fire(kill.FAULT, scene).landed is Landed.MISSED
    assert processes(scene).signals == [("worker-1", 1001, "SIGKILL")]


def test_a_death_that_left_the_same_process_running_contradicts_itself(
    stage: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    scene = stage()
    state = processes(scene).state(scene.aim.container)
    monkeypatch.setattr(processes(scene), "state", lambda container: state)
    assert fire(kill.FAULT, scene).landed is Landed.INCONCLUSIVE


def freeze(scene: Scene, *, silent: bool = True, claims: bool = True) -> None:
    """Let the engine tell of the pause, and the coordinator of what happens meanwhile."""

    def coming() -> list[JsonMap]:
        processes(scene).say("worker-1", "pause")
        words = [] if silent else [event("LEASE_RENEWED")]
        found = [*words, *([event("LEASE_CLAIMED", "lease-2", "worker-2")] if claims else [])]
        time.sleep(0.003)
        processes(scene).say("worker-1", "unpause")
        scene.coming = list
        return found

    scene.coming = coming


@pytest.mark.parametrize(
    ("silent", "claims", "landed"),
    [
        (True, True, Landed.LANDED),
        (False, True, Landed.MISSED),
        (True, False, Landed.MISSED),
    ],
)
def test_a_frozen_worker_lands_where_it_was_silent_and_another_claimed(
    stage: Any, silent: bool, claims: bool, landed: Landed
) -> None:
    scene = stage(min_hold_ms=1)
    freeze(scene, silent=silent, claims=claims)
    receipt = fire(pause.FAULT, scene)
    assert (receipt.landed, receipt.lost_lease_id) == (landed, LEASE)


def test_a_pause_of_which_the_engine_tells_nothing_has_missed(stage: Any) -> None:
    receipt = fire(pause.FAULT, stage(min_hold_ms=1))
    assert (receipt.landed, receipt.lost_lease_id) == (Landed.MISSED, None)


@pytest.mark.parametrize(("deaf", "landed"), [(True, Landed.LANDED), (False, Landed.MISSED)])
def test_a_frozen_coordinator_lands_where_it_answers_nobody(
    stage: Any, deaf: bool, landed: Landed
) -> None:
    scene = stage("coordinator", min_hold_ms=1)
    if deaf:
        scene.world.network.active["worker-1"] = {"t": object()}

    def coming() -> list[JsonMap]:
        processes(scene).say("coordinator", "pause")
        time.sleep(0.003)
        processes(scene).say("coordinator", "unpause")
        return []

    scene.coming = coming
    receipt = fire(pause.FAULT, scene)
    assert (receipt.landed, receipt.lost_lease_id) == (landed, None)


@pytest.mark.parametrize(
    ("exit_code", "saves", "landed"),
    [
        (0, True, Landed.LANDED),
        (143, True, Landed.LANDED),
        (137, True, Landed.MISSED),
        (0, False, Landed.MISSED),
    ],
)
def test_a_notice_lands_where_it_was_obeyed_and_something_saved(
    stage: Any, monkeypatch: pytest.MonkeyPatch, exit_code: int, saves: bool, landed: Landed
) -> None:
    scene = stage(saves=True)
    processes(scene).exit_codes["worker-1"] = exit_code
    saved = [Checkpoint(20, "committed", LEASE)]

    def committed(job_id: str, task_id: str) -> tuple[Checkpoint, ...]:
        found = tuple(saved)
        if saves:
            saved.append(Checkpoint(23, "committed", LEASE))
        return found

    monkeypatch.setattr(scene.world.files, "committed", committed)
    receipt = fire(stop.FAULT, scene)
    assert (receipt.landed, receipt.evidence["exit_code"]) == (landed, exit_code)
    assert receipt.evidence["saved_on_notice"] == (23 if saves else None)


def test_a_restart_must_have_started_the_container_anew(
    stage: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    good = stage("coordinator", then_start=True)
    assert fire(stop.FAULT, good).landed is Landed.LANDED
    bad = stage("coordinator", then_start=True)
    monkeypatch.setattr(processes(bad), "restart", processes(bad).stop)
    assert fire(stop.FAULT, bad).landed is Landed.MISSED


def used(oom_kills: int | None, throttled: int | None = 0) -> Usage:
    return Usage(oom_kills, 100 << 20, 2 << 30, throttled)


@pytest.mark.parametrize(
    ("before", "after", "beside", "landed"),
    [
        (0, 1, False, Landed.LANDED),
        (4, 4, False, Landed.MISSED),
        (0, 1, True, Landed.INCONCLUSIVE),
        (None, None, False, Landed.INCONCLUSIVE),
    ],
)
def test_memory_lands_by_its_counter_unless_that_tells_of_several_attempts(
    stage: Any, before: int | None, after: int | None, beside: bool, landed: Landed
) -> None:
    scene = stage(room_mib=50)
    processes(scene).usages["worker-1"] = [used(before), used(after)]
    if beside:
        other = TaskView("other-00000", "LEASED", "worker-1", "lease-9", 1)
        jobs = {**scene.seen.jobs, "other": JobView("other", "other", "RUNNING", other)}
        scene.seen = replace(scene.seen, jobs=jobs)
    receipt = fire(out_of_memory.FAULT, scene)
    assert receipt.landed is landed
    assert receipt.evidence["limit_mib"] == 150
    assert processes(scene).limited == {}


@pytest.mark.parametrize(
    ("after", "landed"),
    [(40, Landed.LANDED), (3, Landed.MISSED), (None, Landed.INCONCLUSIVE)],
)
def test_starvation_lands_by_the_periods_in_which_it_had_to_wait(
    stage: Any, after: int | None, landed: Landed
) -> None:
    scene = stage(core_percent=10)
    processes(scene).usages["worker-1"] = [used(0, 2), used(0, after)]
    assert fire(cpu_starvation.FAULT, scene).landed is landed
    assert processes(scene).limited == {}


def test_a_clock_lands_by_the_containers_own_reading_and_is_set_right(stage: Any) -> None:
    scene = stage(offset_s=-3600)
    receipt = fire(clock_jump.FAULT, scene)
    assert receipt.landed is Landed.LANDED
    assert receipt.evidence["off_during_s"] == -3600
    assert scene.machine.clocks[RUN].offsets == {}


def test_a_clock_that_cannot_be_set_is_missed(stage: Any) -> None:
    scene = stage(offset_s=60)
    scene.machine.clocks[RUN].reach = False
    assert fire(clock_jump.FAULT, scene).landed is Landed.MISSED


def test_a_log_that_tells_another_time_contradicts_the_reading(
    stage: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(clock_jump, "SETTLE_S", 0.0)
    scene = stage(offset_s=60)
    scene.machine.clocks[RUN].told = ClockReading(0.0, 0.0, True, told_off_s=0.0, told_ns=1)
    assert fire(clock_jump.FAULT, scene).landed is Landed.INCONCLUSIVE


AGENT = (
    Process(1000, 1, 1, "/sbin/docker-init -- sh -c while :; do flashruntime work; done"),
    Process(1001, 7, 1000, "sh -c while :; do flashruntime work; sleep 0.2; done"),
    Process(1002, 8, 1001, "python3 flashruntime work"),
    Process(1003, 9, 1002, "keeper"),
    Process(1004, 10, 1003, "python3 trial.py"),
)


@pytest.mark.parametrize("left", [True, False])
def test_an_agent_dies_alone_and_what_it_left_is_told(
    stage: Any, monkeypatch: pytest.MonkeyPatch, left: bool
) -> None:
    monkeypatch.setattr(kill_agent, "GONE_S", 0.0)
    scene = stage()
    after = (*AGENT[:2], *([AGENT[4]] if left else []))
    processes(scene).listings["worker-1"] = [AGENT, after]
    receipt = fire(kill_agent.FAULT, scene)
    assert (receipt.landed, receipt.lost_lease_id) == (Landed.LANDED, LEASE)
    assert processes(scene).signals == [("worker-1", 1002, "SIGKILL")]
    assert receipt.evidence["left"] == (["python3 trial.py"] if left else [])


def test_an_agent_that_is_the_first_process_is_not_killed_alone(stage: Any) -> None:
    scene = stage()
    processes(scene).listings["worker-1"] = [(Process(1000, 1, 1, "python3 flashruntime work"),)]
    with pytest.raises(NoTarget, match="but its first"):
        fire(kill_agent.FAULT, scene)
    assert processes(scene).signals == []


@pytest.mark.parametrize(
    ("written", "landed"),
    [({"mode": "hang"}, Landed.LANDED), ({"mode": "flood"}, Landed.MISSED), (None, Landed.MISSED)],
)
def test_a_crash_of_the_payload_needs_its_own_word_for_it(
    stage: Any, written: JsonMap | None, landed: Landed
) -> None:
    scene = stage(mode="hang", ended_by="hung")
    if written is not None:
        processes(scene).written[LEASE] = written
    scene.coming = lambda: [event("TASK_ATTEMPT_FAILED", evidence={"ended_by": "hung", "step": 7})]
    assert fire(app_crash.FAULT, scene).landed is landed


@pytest.mark.parametrize(
    ("amount", "landed"), [(200, Landed.LANDED), (3, Landed.MISSED), (None, Landed.MISSED)]
)
def test_a_strain_lands_where_enough_of_it_was_done(
    stage: Any, amount: int | None, landed: Landed
) -> None:
    scene = stage(mode="children", at_least=200)
    processes(scene).written[LEASE] = {"mode": "children", "amount": amount, "began_ns": 5}
    scene.coming = lambda: [event("TASK_COMMIT_ACCEPTED")]
    receipt = fire(app_strain.FAULT, scene)
    assert (receipt.landed, receipt.took_effect_ns) == (landed, 5)


def test_a_strain_of_an_attempt_that_does_not_end_is_missed(stage: Any) -> None:
    assert fire(app_strain.FAULT, stage(mode="flood", at_least=1)).landed is Landed.MISSED


def test_a_run_that_is_judged_by_its_processes_lists_them_at_the_end(
    harness: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Again where a job's own is left: what was killed may take a moment to go."""
    monkeypatch.setattr("chaos.collect.TICK_S", 0.001)
    jobs = {"main": JobRequest("m", ("python3", "t.py"), files={"t.py": b""})}
    experiment = Experiment("e", "", "w", lambda draw: (), ("no_orphan_process",), drain_s=20.0)
    plan = make_plan(experiment, 1, 2, jobs, images={})
    run = Run(RUN, harness.folder, plan, jobs, lambda: False, poll_s=0.001, steady_s=0.2)
    controller = Controller(harness.machine, {}, run, harness.said.append)
    left = (Process(1001, 7, 1, "python3 t.py"),)
    harness.machine.processes[RUN].listings["worker-1"] = [left, ()]
    controller.carry_out()
    listed = harness.history.one("processes")["containers"]
    assert listed == [{"service": f"worker-{n}", "commands": []} for n in (1, 2)]


def test_each_variant_is_a_file_of_the_composition_and_may_run_something_first(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked: list[tuple[tuple[str, ...], tuple[str, ...]]] = []
    monkeypatch.setattr(
        stack, "compose", lambda name, verb, told, files: asked.append((verb, files))
    )
    variants = {name for each in registry.experiments() for name in each.variants}
    assert {"clock", "supervised", "restarts", "relay"} <= variants
    for variant in sorted(variants):
        asked.clear()
        stack.Project("r", 1, {}, variants=(variant,)).up_on_free_ports()
        *first, up = asked
        assert [verb[-1] for verb, _ in first] == (["clock"] if variant == "clock" else [])
        assert up[0][0] == "up"
        assert (stack.ROOT / up[1][-1]).is_file()
