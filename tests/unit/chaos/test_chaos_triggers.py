"""Triggers by state, log, file, phase and chance, lanes, and the floor of workers."""

import re
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chaos.disturb import share_a_lane
from chaos.floor import Floor
from chaos.looks import LogLook, looks_of
from chaos.model import (
    Action,
    Comeback,
    JobView,
    Observation,
    TaskView,
    Trigger,
    UsageError,
)
from chaos.ports import RunSpec, Scene
from chaos.ports.signs import Written
from chaos.stage import resolvable, resolve
from chaos.targets.inside import files
from chaos.testing import FakeMachine
from chaos.testing.signs import FakeSigns
from chaos.triggers import Lot, check_conditions, holds, view_of

TASK = TaskView("t", "LEASED", node_id="worker-2", lease_id="l1", attempts=1, step=40)
JOB = JobView("storm/1", "job-1", "LEASED", TASK, checkpoints=2)
SEEN = Observation(
    elapsed_s=5.0,
    jobs={"storm": JobView("storm", "job-1", "RUNNING"), "storm/1": JOB},
    signs=frozenset({"f/log", "f/phase"}),
)
LOT = Lot("f", 1)


@pytest.mark.parametrize(
    ("trigger", "expected"),
    [
        (Trigger("storm/1", state="LEASED"), True),
        (Trigger("storm/1", state="COMPLETED"), False),
        (Trigger("storm", state="RUNNING"), True),
        (Trigger("nobody", state="RUNNING"), False),
        (Trigger("worker 2", step_at_least=40), True),
        (Trigger("worker 1", step_at_least=0), False),
        (Trigger(log_of="coordinator", log_like="x"), True),
        (Trigger(file_like="x"), False),
        (Trigger(phase="parts-written"), True),
        (Trigger("storm/1", phase="parts-written", step_at_least=41), False),
        (Trigger("storm/1", phase="parts-written", step_at_least=40, elapsed_s=5.0), True),
    ],
)
def test_all_conditions_must_hold_at_once(trigger: Trigger, expected: bool) -> None:
    assert holds(trigger, SEEN, LOT) is expected


def test_the_signs_of_one_fault_are_not_those_of_another() -> None:
    assert not holds(Trigger(phase="parts-written"), SEEN, Lot("g", 1))


def seconds(seed: int, fault_id: str, chance: float, until: int = 600) -> list[int]:
    trigger, lot = Trigger(chance_per_s=chance), Lot(fault_id, seed)
    return [s for s in range(until) if holds(trigger, replace(SEEN, elapsed_s=s + 0.5), lot)]


@given(st.integers(0, 2**63))
def test_chance_is_the_same_in_every_run_of_a_seed_and_at_every_look_of_a_second(seed: int) -> None:
    lot = Lot("f", seed)
    for second in range(20):
        looks = {lot.comes_up(0.3, second + part) for part in (0.0, 0.1, 0.999)}
        assert len(looks) == 1
    assert seconds(seed, "f", 0.3, 40) == seconds(seed, "f", 0.3, 40)


def test_chance_comes_about_as_often_as_it_says_and_differently_for_each_fault_and_seed() -> None:
    assert 120 < len(seconds(1, "f", 0.25)) < 180
    assert seconds(1, "f", 1.0) == [*range(600)]
    assert len({tuple(seconds(seed, name, 0.25)) for seed in (1, 2) for name in ("f", "g")}) == 4


@pytest.mark.parametrize(
    "trigger",
    [
        Trigger(log_of="coordinator"),
        Trigger(log_like="x"),
        Trigger(log_of="worker-4", log_like="x"),
        Trigger(log_of="coordinator", log_like="("),
        Trigger(phase="later"),
        Trigger(chance_per_s=0.0),
        Trigger(chance_per_s=1.1),
        Trigger(file_like="/etc/*"),
        Trigger(file_like="../*"),
        Trigger(file_like=""),
    ],
)
def test_a_condition_that_can_never_be_seen_is_refused(trigger: Trigger) -> None:
    with pytest.raises(UsageError, match="'f'"):
        check_conditions([Action("f", "kill", "coordinator", trigger, 30.0)], workers=3)


def test_a_line_is_looked_for_in_what_is_new_and_stays_found() -> None:
    signs = FakeSigns(lines={"coordinator": [Written(10, "ready"), Written(90, "ready at last")]})
    assert not LogLook(signs, "coordinator", _pattern("^ready$"), since_ns=50)(SEEN)
    look = LogLook(signs, "coordinator", _pattern("ready"), since_ns=50, again_ns=0)
    assert look(SEEN)
    signs.lines.clear()
    assert look(SEEN)
    assert signs.looks == 2


def test_what_was_read_is_not_read_again() -> None:
    signs = FakeSigns(lines={"coordinator": [Written(100, "a"), Written(200, "b")]})
    look = LogLook(signs, "coordinator", _pattern("never"), since_ns=0, again_ns=10)
    assert not look(SEEN)
    assert look.since_ns == 190


def _pattern(text: str) -> re.Pattern[str]:
    return re.compile(text)


def test_looks_are_taken_only_for_what_a_trigger_asks() -> None:
    signs = FakeSigns(paths=[".staging/l1/step-000001/part-0"], open_saves={"l1"})
    plain = Action("f", "kill", "coordinator", Trigger(), 30.0)
    assert looks_of(plain, signs, LOT) == {}
    asked = replace(
        plain, trigger=Trigger("storm/1", file_like=".staging/*", phase="parts-written")
    )
    answers = {name: look(SEEN) for name, look in looks_of(asked, signs, LOT).items()}
    assert answers == {"f/files": True, "f/phase": True}
    nobody = replace(asked, trigger=replace(asked.trigger, role="worker 1"))
    assert not any(look(SEEN) for look in looks_of(nobody, signs, LOT).values())


def test_parts_without_a_manifest_are_found_on_the_volume(tmp_path: Path) -> None:
    save = tmp_path / ".staging" / "l1" / "step-000010"
    save.mkdir(parents=True)
    ask = {"root": str(tmp_path), "pattern": ".staging/l1/step-*", "most": 1}
    assert files.answer({**ask, "lacking": "manifest.json"}) == {"paths": []}
    (save / "part-0").write_bytes(b"x")
    here = {"paths": [".staging/l1/step-000010"]}
    assert files.answer({**ask, "lacking": "manifest.json"}) == here
    (save / "manifest.json").write_bytes(b"{}")
    assert files.answer({**ask, "lacking": "manifest.json"}) == {"paths": []}
    assert files.answer({**ask, "lacking": None}) == here
    assert files.answer({**ask, "root": str(tmp_path / "no"), "lacking": None}) == {"paths": []}


def test_a_log_line_fires_a_fault_in_a_run(harness: Any, kill: Any, action: Any) -> None:
    harness.machine.signs.lines["coordinator"] = [Written(1 << 62, "checkpoint registered")]
    trigger = Trigger(step_at_least=3, log_of="coordinator", log_like="registered$")
    harness.run(kill(), replace(action(0), trigger=trigger))
    (receipt,) = harness.history.of("fault_receipt")
    assert receipt["landed"] == "landed"


@pytest.mark.parametrize("late", [Trigger(file_like="never/*"), Trigger(state="WISHED")])
def test_what_never_comes_is_missed_at_the_deadline(
    harness: Any, kill: Any, action: Any, late: Trigger
) -> None:
    fault = kill()
    harness.run(fault, replace(action(0), trigger=late, deadline_s=0.1))
    (receipt,) = harness.history.of("fault_receipt")
    assert receipt["landed"] == "missed"
    assert "did not come within" in str(receipt["evidence"])
    assert fault.fired == []


def test_a_worker_by_number_is_the_one_that_holds_a_task_then() -> None:
    world = FakeMachine().world(RunSpec("run-1", 3))
    assert view_of("worker 2", SEEN) == JOB
    assert resolvable("worker 2", SEEN)
    assert not resolvable("worker 1", SEEN)
    target = resolve("worker 2", SEEN, world, "run-1")
    assert target.container is not None
    found = (target.symbol, target.container.service, target.lease_id, target.listener)
    assert found == ("worker 2", "worker-2", "l1", "worker-2")


def lane(fault_id: str, *lanes: str) -> Action:
    return Action(fault_id, "kill", "coordinator", Trigger(), 30.0, lanes=lanes)


@pytest.mark.parametrize(
    ("one", "other", "shared"),
    [
        ((), ("a",), False),
        ((), ("*",), False),
        (("a",), ("b",), False),
        (("a",), ("a", "b"), True),
        (("*",), ("a",), True),
        (("*",), ("*",), True),
    ],
)
def test_faults_overlap_unless_they_share_a_lane(one: Any, other: Any, shared: bool) -> None:
    assert share_a_lane(lane("x", *one), lane("y", *other)) is shared
    assert share_a_lane(lane("y", *other), lane("x", *one)) is shared


def test_who_shares_a_lane_fires_after_the_one_before_has_its_receipt(
    harness: Any, kill: Any, action: Any
) -> None:
    """Without the lane the second would fire at once: both wait for the same step."""
    first, second = (
        replace(action(0, name), lanes=("one",), comeback=Comeback.AT_ONCE)
        for name in ("first", "second")
    )
    harness.run(kill(), first, second)
    kinds = [
        (record.kind, record.data["fault_id"])
        for record in harness.history.records
        if record.kind in {"fault_armed", "fault_receipt"}
    ]
    assert kinds[:3] == [
        ("fault_armed", "first"),
        ("fault_receipt", "first"),
        ("fault_armed", "second"),
    ]


def up(*down: str) -> Any:
    return lambda service: service not in down


def test_the_last_worker_is_not_taken() -> None:
    floor = Floor(workers=2, least=1)
    assert floor.take("a", "worker-1", up()) is None
    refused = floor.take("b", "worker-2", up("worker-1"))
    assert refused == "worker-2 is not taken: 0 of 2 workers would be left, and the floor is 1"


def test_a_worker_that_a_fault_is_about_to_take_counts_as_taken() -> None:
    """Both are up when they are asked for: without the reservation both would go."""
    floor = Floor(workers=2, least=1)
    assert floor.take("a", "worker-1", up()) is None
    assert floor.take("b", "worker-2", up()) is not None
    floor.release("a")
    assert floor.take("b", "worker-2", up()) is None


def test_a_fault_may_take_its_own_worker_again_and_what_is_no_worker_always() -> None:
    floor = Floor(workers=2, least=1)
    assert floor.take("a", "worker-1", up()) is None
    assert floor.take("a", "worker-1", up("worker-1")) is None
    assert floor.take("b", "coordinator", up("worker-1", "worker-2")) is None


@given(st.integers(1, 8), st.integers(0, 8), st.lists(st.integers(1, 8), max_size=20))
def test_however_many_ask_as_many_as_the_floor_are_left(
    workers: int, least: int, asked: list[int]
) -> None:
    floor, taken = Floor(workers, least), set[str]()
    for number, worker in enumerate(asked):
        service = f"worker-{min(worker, workers)}"
        if floor.take(f"f{number}", service, lambda name: name not in taken) is None:
            taken.add(service)
            floor.release(f"f{number}")
        assert workers - len(taken) >= min(least, workers)


def test_threads_that_ask_at_once_do_not_take_everybody() -> None:
    floor, got = Floor(workers=4, least=2), list[str]()

    def ask(number: int) -> None:
        if floor.take(f"f{number}", f"worker-{number}", up()) is None:
            got.append(f"worker-{number}")

    threads = [threading.Thread(target=ask, args=(number,)) for number in range(1, 5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(got) == 2


def test_a_fault_that_would_leave_too_few_workers_misses_and_touches_nothing(
    harness: Any, kill: Any, action: Any
) -> None:
    fault = kill()
    harness.run(fault, action(3, "first"), floor=3)
    (receipt,) = harness.history.of("fault_receipt")
    assert receipt["landed"] == "missed"
    assert "2 of 3 workers would be left, and the floor is 3" in str(receipt["evidence"])
    assert fault.fired == []
    assert [each for each in harness.history.of("undo") if each["fault_id"] == "first"] == []


def test_a_worker_that_its_fault_has_brought_back_may_be_taken_by_another(
    harness: Any, kill: Any, action: Any
) -> None:
    """Its fault may still wait for evidence, while the worker works again."""
    answers: list[str | None] = []

    def asks_around(scene: Scene) -> None:
        floor, held = scene._records.floor, scene.target().container  # type: ignore[attr-defined]
        other = "worker-2" if held and held.service != "worker-2" else "worker-3"
        answers.append(floor.take("other", other, lambda name: True))
        scene.undo_now()
        answers.append(floor.take("other", other, lambda name: True))

    harness.run(kill(during=asks_around), action(3), floor=2)
    assert answers[0] is not None
    assert answers[1] is None
