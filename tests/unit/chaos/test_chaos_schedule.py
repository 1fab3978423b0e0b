"""Plans and seeds."""

import dataclasses
import json
import subprocess
import sys
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chaos.model import Action, JobRequest, Trigger, UsageError
from chaos.schedule import (
    Draw,
    Experiment,
    Plan,
    check_schedule,
    check_triggers,
    make_plan,
)

NAMES = st.text(alphabet="abcdefgh-0123456789", min_size=1, max_size=12)


def fault(draw: Draw, fault_id: str, decisions: int = 1) -> Action:
    values = [draw.integer(fault_id, f"d{number}", 0, 1 << 30) for number in range(decisions)]
    return Action(fault_id, "kill", "holder of main", Trigger(), 30.0, {"values": [*values]})


def plan_of(seed: int, *fault_ids: str) -> Plan:
    experiment = Experiment(
        name="e",
        summary="",
        workload="w",
        faults=lambda draw: tuple(fault(draw, fault_id) for fault_id in fault_ids),
        invariants=("fenced_holder",),
    )
    jobs = {"main": JobRequest("main", ("true",), files={"a.py": b"1"}, env={"B": "2", "A": "1"})}
    return make_plan(experiment, seed, 3, jobs, images={"image": "sha256:1"})


@given(st.integers(0, 2**64))
def test_the_same_input_gives_the_same_bytes(seed: int) -> None:
    assert plan_of(seed, "a", "b").to_bytes() == plan_of(seed, "a", "b").to_bytes()


def test_the_same_input_gives_the_same_bytes_in_another_process() -> None:
    code = (
        "from chaos.schedule import *\n"
        "from chaos.model import *\n"
        "d = Draw(7)\n"
        "t = 'coordinator'\n"
        "a = lambda n: Action(n, 'k', t, Trigger(), 3.0, {'v': d.integer(n, 'x', 0, 9**9)})\n"
        "e = Experiment('e', '', 'w', lambda draw: (a('p'), a('q')), ('z',))\n"
        "f = {'b': b'', 'a': b''}\n"
        "j = {'main': JobRequest('m', ('true',), files=f, env={'y': '', 'x': ''})}\n"
        "import sys\n"
        "sys.stdout.buffer.write(make_plan(e, 7, 3, j, images={'i': 'd', 'a': 'b'}).to_bytes())\n"
    )
    runs = {
        subprocess.run(
            [sys.executable, "-c", code],
            env={"PYTHONHASHSEED": str(number), "PYTHONPATH": ":".join(sys.path)},
            check=True,
            capture_output=True,
        ).stdout
        for number in (1, 2)
    }
    assert len(runs) == 1


def test_another_seed_gives_another_plan() -> None:
    assert plan_of(1, "a").schedule != plan_of(2, "a").schedule


@given(st.integers(0, 2**32), st.lists(NAMES, unique=True, max_size=6), NAMES)
def test_a_fault_that_is_added_shifts_no_other(seed: int, names: list[str], added: str) -> None:
    before = {action.fault_id: action for action in plan_of(seed, *names).schedule}
    others = [name for name in names if name != added]
    for action in plan_of(seed, added, *others).schedule:
        assert action.fault_id == added or action == before[action.fault_id]


@given(st.integers(0, 2**32), NAMES, st.integers(1, 5))
def test_one_decision_more_shifts_no_other_of_the_same_fault(
    seed: int, name: str, decisions: int
) -> None:
    few = fault(Draw(seed), name, decisions).params["values"]
    more = fault(Draw(seed), name, decisions + 1).params["values"]
    assert isinstance(few, list)
    assert isinstance(more, list)
    assert more[:-1] == few


@given(st.integers(0, 2**64), st.integers(-100, 100), st.integers(0, 200))
def test_a_drawn_integer_is_within_its_limits(seed: int, low: int, width: int) -> None:
    assert low <= Draw(seed).integer("f", "n", low, low + width) <= low + width


def test_every_choice_comes_up() -> None:
    assert {Draw(seed).choice("f", "n", "abc") for seed in range(50)} == set("abc")


def test_the_plan_is_strict_json_with_its_schema() -> None:
    plan = json.loads(plan_of(1, "a").to_bytes())
    assert plan["schema"] == "chaos_plan_v1"
    assert plan["schedule"][0]["trigger"]["role"] == "main"
    assert plan["jobs"]["main"]["files"] == {
        "a.py": "6b86b273ff34fce19d6b804eff5a3f5747ada4eaa22f1d49c01e52ddb7875b4b"
    }


@pytest.mark.parametrize(
    ("actions", "message"),
    [
        (("a", "a"), "twice"),
        (("a>b", "b"), "not before it"),
    ],
)
def test_a_schedule_that_cannot_be_followed_is_refused(actions: Any, message: str) -> None:
    schedule = []
    for word in actions:
        fault_id, _, after = word.partition(">")
        action = fault(Draw(1), fault_id)
        schedule.append(dataclasses.replace(action, trigger=Trigger(after=after or None)))
    with pytest.raises(UsageError, match=message):
        check_schedule(schedule)


def test_a_trigger_that_retention_makes_impossible_is_refused() -> None:
    """Who waits for more checkpoints than a job keeps would wait for ever, on some seeds only."""
    jobs = {"storm": JobRequest("storm", ("true",), keep_checkpoints=3)}
    for wanted, role, fits in ((3, "storm", True), (4, "storm", False), (4, "storm/1", False)):
        trigger = Trigger(role, checkpoints_at_least=wanted)
        schedule = (Action("late", "kill", f"holder of {role}", trigger, 30.0),)
        if fits:
            check_triggers(schedule, jobs)
        else:
            with pytest.raises(UsageError, match=r"'late' waits for 4 checkpoints .* keeps 3"):
                check_triggers(schedule, jobs)
