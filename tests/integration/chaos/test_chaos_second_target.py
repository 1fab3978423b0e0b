"""The harness on a system that is not flashruntime: a queue in Redis, known by one adapter."""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from chaos import registry, report
from chaos.controller import Controller, End, Outcome, Run
from chaos.heal import heal
from chaos.history import History, items
from chaos.judge import Judgement, judge
from chaos.model import Action, Comeback, JobRequest, JsonMap, NoTarget, Trigger, Verdict
from chaos.ports import Invariant, RunSpec
from chaos.ports.disks import Volume
from chaos.schedule import Draw, Experiment, make_plan
from chaos.words import counted
from tests.targets.redis_queue.adapter import LOSES, QueueMachine

pytestmark = pytest.mark.integration
TASKS = 24
LOST_PERCENT = 20
RECOVER_S = 6.0
"""Some times what a worker takes to come back and to take another task."""
Aims = tuple[tuple[str, str, str, JsonMap], ...]
FEW_TASKS = 10
"""So few that all but the lost ones have ended long before a run stops waiting for those."""
GENERAL = (
    "history_complete",
    "faults_landed",
    "no_task_lost",
    "one_accepted_result",
    "steady_again",
    "machine_clean",
)
WORKERS = 2


def every_result(history: History) -> tuple[Verdict, str]:
    """The queue's own rule: each task that was submitted has its result."""
    tasks = items(history.final("main")["tasks"])
    missing = [str(task["task_id"]) for task in tasks if not task.get("result")]
    if missing:
        return Verdict.VIOLATED, f"no result of {', '.join(missing)}"
    return Verdict.VALID, f"a result of each of {counted(len(tasks), 'task')}"


INVARIANTS = (Invariant("every_result", every_result), *registry.invariants(GENERAL))


def at_workers(draw: Draw) -> Aims:
    """Take away a worker that holds a task, at once and with a grace."""
    grace_s = draw.integer("stop-worker", "grace_s", 3, 6)
    return (
        ("kill-worker", "kill", "worker 1", {}),
        ("stop-worker", "stop", "worker 2", {"grace_s": grace_s}),
    )


def at_all(draw: Draw) -> Aims:
    """Then lose packets of a worker, freeze the server, and kill it."""
    hold_ms = draw.integer("pause-server", "min_hold_ms", 1200, 1800)
    return (
        *at_workers(draw),
        ("lose-packets", "loss", "worker 1", {"percent": LOST_PERCENT}),
        ("pause-server", "pause", "coordinator", {"min_hold_ms": hold_ms}),
        ("kill-server", "kill", "coordinator", {}),
    )


def in_turn(aims: Aims) -> tuple[Action, ...]:
    """One fault after the other, each while worker 1, or the worker that it hits, holds a task."""
    names = [None, *(name for name, *_ in aims)]
    return tuple(
        Action(
            fault_id=name,
            kind=kind,
            target=target,
            trigger=Trigger(role="worker 1" if target == "coordinator" else target, after=before),
            deadline_s=60.0,
            params=params,
            comeback=Comeback.AT_ONCE,
            tries=5,
        )
        for before, (name, kind, target, params) in zip(names, aims, strict=False)
    )


EXPERIMENT = Experiment(
    name="queue_faults",
    summary="workers and the server of a queue are killed, stopped, frozen and cut off",
    workload="numbers",
    faults=lambda draw: in_turn(at_all(draw)),
    invariants=(),
    workers=WORKERS,
    drain_s=30.0,
)
FAULTS = ("kill-worker", "stop-worker", "lose-packets", "pause-server", "kill-server")
LOSING = replace(
    EXPERIMENT,
    name="queue_loses",
    summary="workers of a queue are killed and stopped",
    faults=lambda draw: in_turn(at_workers(draw)),
    drain_s=8.0,
)


def jobs(tasks: int) -> dict[str, JobRequest]:
    """One job of so many numbered tasks."""
    return {"main": JobRequest("numbers", (), task_params=tuple({"n": n} for n in range(tasks)))}


@dataclass(frozen=True, slots=True)
class Ran:
    """A run that is over."""

    outcome: Outcome
    judgement: Judgement
    folder: Path

    @property
    def verdicts(self) -> dict[str, Verdict]:
        return {found.name: found.verdict for found in self.judgement.findings}


Carry = Callable[..., Ran]


@pytest.fixture
def carry_out(tmp_path: Path) -> Carry:
    """Run the experiment on the queue as it is, or with its bug."""
    machine = QueueMachine()
    try:
        images = machine.images(None)
    except Exception as error:  # noqa: BLE001 (whatever it is, the remedy is the same)
        pytest.fail(f"no image of the queue: `docker/setup.sh test` builds it ({error})")

    def run(
        experiment: Experiment = EXPERIMENT, planted: str | None = None, tasks: int = TASKS
    ) -> Ran:
        load = jobs(tasks)
        plan = make_plan(experiment, 1, WORKERS, load, images=images, planted=planted)
        run_id = f"queue-{tmp_path.name[-12:]}"
        run = Run(run_id, tmp_path, plan, load, lambda: False, recover_s=RECOVER_S)
        outcome = Controller(machine, registry.faults(), run, lambda _: None).carry_out()
        history = History.load(tmp_path / "history.jsonl")
        judgement = judge(history, INVARIANTS)
        report.write(tmp_path, judgement, history)
        return Ran(outcome, judgement, tmp_path)

    return run


def test_a_queue_that_gives_back_what_its_dead_workers_had_is_valid(carry_out: Carry) -> None:
    ran = carry_out()
    assert ran.outcome == Outcome(End.COMPLETED)
    assert {str(fault["id"]): str(fault["landed"]) for fault in ran.judgement.faults} == (
        dict.fromkeys(FAULTS, "landed")
    )
    assert ran.judgement.verdict is Verdict.VALID, ran.judgement.findings
    events = Counter(event.type for event in History.load(ran.folder / "history.jsonl").events())
    assert events["TASK_COMMIT_ACCEPTED"] == TASKS
    assert events["TASK_REQUEUED"] >= 1, "a kill took a task away, and it was given back"
    page = (ran.folder / "report.html").read_text("utf-8")
    assert "every_result" in page
    assert all(name in page for name in FAULTS)


def test_a_queue_whose_workers_pop_their_tasks_is_caught(carry_out: Carry) -> None:
    ran = carry_out(LOSING, LOSES, FEW_TASKS)
    assert {str(fault["landed"]) for fault in ran.judgement.faults} == {"landed"}
    assert ran.verdicts["every_result"] is Verdict.VIOLATED
    assert ran.verdicts["no_task_lost"] is Verdict.VIOLATED
    assert ran.verdicts["machine_clean"] is Verdict.VALID


def test_what_a_run_left_behind_is_healed_without_the_process_that_made_it(
    tmp_path: Path,
) -> None:
    machine = QueueMachine()
    spec = RunSpec(f"queue-{tmp_path.name[-12:]}", WORKERS)
    machine.world(spec).stack.up()
    healing = heal(machine, [tmp_path], lambda _: None)
    assert spec.run_id in healing.healed
    assert machine.audit(spec.run_id).clean


def test_a_fault_at_what_the_queue_does_not_have_has_missed_and_says_so() -> None:
    world = QueueMachine().world(RunSpec("queue-none", WORKERS))
    with pytest.raises(NoTarget, match="no volumes of its own"):
        world.disks.probe(Volume.LEDGER)
    assert world.network.listeners() == ()
