"""Plans as files: read back, edited, run as they are, refused where they cannot be followed."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from chaos import registry, runner
from chaos.cli import main
from chaos.model import Action, Comeback, JobRequest, Trigger, UsageError
from chaos.planfile import plan_of, read_plan
from chaos.schedule import Plan
from chaos.symbols import check_symbols
from chaos.testing import FakeMachine

Cli = Callable[..., int]
JOBS = {
    "main": JobRequest("main", ("true",)),
    "storm": JobRequest("storm", ("true",), task_params=({"n": 0}, {"n": 1})),
}
WORDS = st.text(alphabet="abc-09", min_size=1, max_size=6)
MAYBE = st.none() | st.integers(0, 9)
TRIGGERS = st.builds(
    Trigger,
    role=WORDS,
    step_at_least=MAYBE,
    after=st.none() | WORDS,
    state=st.none() | WORDS,
    log_like=st.none() | WORDS,
    chance_per_s=st.none() | st.floats(0.1, 1.0),
)
ACTIONS = st.builds(
    Action,
    WORDS,
    WORDS,
    WORDS,
    TRIGGERS,
    st.floats(1, 99),
    st.dictionaries(WORDS, st.integers() | st.text() | st.none(), max_size=2),
    st.sampled_from(Comeback),
    st.lists(WORDS, max_size=2).map(tuple),
)


@pytest.fixture
def cli(machine: FakeMachine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Cli:
    monkeypatch.chdir(tmp_path)
    return lambda *argv: main(list(argv), machine=lambda: machine)


@pytest.fixture
def storm(fake_registry: Any, kill: Any, action: Any, experiment: Any) -> Any:
    fault = kill()
    fake_registry(fault, experiment(action(5)))
    return fault


def latest() -> Path:
    return Path("chaos-runs/latest")


def edited(change: Callable[[dict[str, Any]], object] = lambda plan: None) -> str:
    """Write the plan of the experiment of the test, changed; nothing is run for it."""
    images = FakeMachine().images(None)
    plan = runner.prepare(registry.experiments()[0], runner.Options(), images)[0].to_json()
    change(plan)
    Path("edited.json").write_text(json.dumps(plan))
    return "edited.json"


@settings(max_examples=40)
@given(st.lists(ACTIONS, max_size=3).map(tuple), st.integers(0, 3))
def test_a_plan_is_read_back_as_it_was_written(schedule: tuple[Action, ...], floor: int) -> None:
    plan = Plan("e", "s", 7, 3, None, 20.0, "w", {}, schedule, ("i",), {"image": "1"}, floor=floor)
    again = plan_of(json.loads(plan.to_bytes()))
    assert again == plan
    assert again.to_bytes() == plan.to_bytes()


def test_what_a_plan_does_not_use_does_not_stand_in_it() -> None:
    """Plans of before stay the same bytes, so that a seed still means the same run."""
    action = Action("f", "kill", "coordinator", Trigger(elapsed_s=1), 30.0)
    plan = Plan("e", "s", 7, 3, None, 20.0, "w", {}, (action,), (), {})
    [written] = json.loads(plan.to_bytes())["schedule"]
    assert written["trigger"].keys() == {
        "role",
        "step_at_least",
        "checkpoints_at_least",
        "after",
        "event",
        "elapsed_s",
    }
    assert "lanes" not in written
    assert b"floor" not in plan.to_bytes()


def test_every_experiment_can_be_read_back() -> None:
    for experiment in registry.experiments():
        plan, jobs = runner.prepare(experiment, runner.Options(seed=3), {})
        saved = plan_of(json.loads(plan.to_bytes()))
        assert runner.prepare_saved(saved, {}) == (plan, jobs)


def test_an_edited_schedule_runs_as_it_was_edited(
    cli: Cli, storm: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    def later(plan: dict[str, Any]) -> None:
        plan["schedule"][0]["trigger"]["step_at_least"] = 9
        plan["schedule"][0]["fault_id"] = "later"

    assert cli("run", "--plan", edited(later)) == 0
    assert "kill-1 is left out" in capsys.readouterr().out
    plan = json.loads((latest() / "plan.json").read_bytes())
    assert plan["schedule"][0]["trigger"]["step_at_least"] == 9
    assert storm.fired == ["later"]
    assert cli("replay", str(latest().resolve())) == 0
    assert storm.fired == ["later", "later"]


def test_replay_runs_the_saved_schedule_when_the_experiment_has_changed(
    cli: Cli, storm: Any, fake_registry: Any, *, action: Any, experiment: Any,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    folder = Path("saved")
    folder.mkdir()
    Path(edited()).rename(folder / "plan.json")
    fake_registry(storm, experiment(action(5), action(6, "kill-2")))
    assert cli("replay", str(folder)) == 0
    assert "kill-2 is left out" in capsys.readouterr().out
    assert read_plan(latest()) == read_plan(folder)
    assert storm.fired == ["kill-1"]


def test_a_replay_says_which_image_is_another_one_now(
    cli: Cli, storm: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    plan = edited()
    monkeypatch.setattr(FakeMachine, "images", lambda self, planted: {"other": "sha256:9"})
    cli("run", "--plan", plan)
    out = capsys.readouterr().out
    assert "image other is another one now" in out
    assert "image flashruntime/runtime:local is another one now" in out


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (lambda plan: plan.update(schedule=[]), "schedule is empty"),
        (lambda plan: plan.update(wish=1), "no field 'wish'"),
        (lambda plan: plan.update(schema="chaos_plan_v9"), "schema must be"),
        (lambda plan: plan.update(workers="3"), "workers: '3'"),
        (lambda plan: plan.update(workers=True), "workers: True"),
        (lambda plan: plan.update(workers=99), "--workers 99"),
        (lambda plan: plan.pop("seed"), "incomplete"),
        (lambda plan: plan["schedule"][0].update(kind="wish"), "no fault of kind 'wish'"),
        (lambda plan: plan["schedule"][0].update(target=""), "no such target"),
        (lambda plan: plan["schedule"][0].update(target="holder of nobody"), "no job has the role"),
        (lambda plan: plan["schedule"][0].update(comeback="never"), "comeback: 'never'"),
        (lambda plan: plan["schedule"][0]["trigger"].update(steps=1), "no field 'steps'"),
        (lambda plan: plan["schedule"][0]["trigger"].update(role="nobody"), "speaks of 'nobody'"),
        (lambda plan: plan["schedule"][0]["trigger"].update(chance_per_s=2), "chance_per_s=2"),
        (lambda plan: plan.update(invariants=["wish"]), "no invariant 'wish'"),
        (lambda plan: plan["jobs"]["main"].update(files={"x.py": "1"}), "needs 'x.py'"),
    ],
)
def test_a_plan_that_cannot_be_followed_is_a_usage_error_before_anything_starts(
    cli: Cli,
    storm: Any,
    machine: FakeMachine,
    *,
    change: Any,
    told: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert cli("run", "--plan", edited(change)) == 2
    assert told in capsys.readouterr().err
    assert machine.systems == {}


@pytest.mark.parametrize("more", [["--seed", "1"], ["--workers", "3"], ["--count", "2"], ["storm"]])
def test_what_the_plan_says_itself_is_not_said_beside_it(
    cli: Cli, storm: Any, more: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli("run", "--plan", edited(), *more) == 2
    assert f"{more[0]} beside --plan" in capsys.readouterr().err


def test_a_bug_can_be_planted_into_a_saved_plan(cli: Cli, storm: Any) -> None:
    assert cli("run", "--plan", edited(), "--planted", "no_fencing") == 0
    assert read_plan(latest()).planted == "no_fencing"


def test_a_dry_run_says_what_each_symbol_may_match_and_which_stacks_run(
    cli: Cli, storm: Any, machine: FakeMachine, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli("run", "--dry-run") == 0
    shown = capsys.readouterr().out
    assert "one of worker-1 to worker-3: whichever holds main then" in shown
    assert "no stack of a run is up" in shown
    machine.world(runner_spec("run-other")).stack.up()
    assert cli("run", "--dry-run", "--json") == 0
    (plan,) = json.loads(capsys.readouterr().out)
    assert plan["running"] == {"run-other": ["coordinator"]}
    assert plan["targets"].keys() == {"holder of main"}


def runner_spec(run_id: str) -> Any:
    from chaos.ports import RunSpec

    return RunSpec(run_id, 3)


@pytest.mark.parametrize(
    ("target", "is_known"),
    [
        ("coordinator", True),
        ("toxiproxy", True),
        ("holder of main", True),
        ("holder of storm/1", True),
        ("worker 3", True),
        ("target of first", True),
        ("holder of storm", False),
        ("holder of storm/2", False),
        ("holder of storm/x", False),
        ("checkpoints of nobody", False),
        ("worker 4", False),
        ("worker 0", False),
        ("worker-1", False),
        ("target of second", False),
        ("target of third", False),
        ("", False),
        ("everybody", False),
    ],
)
def test_a_symbol_that_can_match_nothing_is_refused_at_plan_time(
    target: str, is_known: bool
) -> None:
    first = Action("first", "kill", "coordinator", Trigger(), 30.0)
    schedule = (first, replace(first, fault_id="second", target=target))
    if is_known:
        check_symbols(schedule, JOBS, workers=3)
    else:
        with pytest.raises(UsageError, match="'second': target"):
            check_symbols(schedule, JOBS, workers=3)


def test_shrink_finds_the_one_fault_that_matters_and_goes_on_where_it_stopped(
    cli: Cli,
    fake_registry: Any,
    kill: Any,
    *,
    action: Any,
    experiment: Any,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """With the fault "bad" in the schedule, the job of this twin ends as failed."""
    fault = kill()
    chain = [(None, "bad"), ("bad", "f1"), ("f1", "f2"), ("f2", "f3")]
    actions = [
        replace(action(0, name), trigger=Trigger(after=before), comeback=Comeback.AT_ONCE)
        for before, name in chain
    ]
    fake_registry(fault, experiment(*actions))
    monkeypatch.setattr(FakeMachine, "world", failing_after_bad(FakeMachine.world, fault))
    assert cli("run") == 1
    of = str(latest().resolve())
    assert cli("shrink", of, "--budget-s", "0") == 3
    assert "the same command goes on" in capsys.readouterr().out
    assert cli("shrink", of, "--rate", "2/2", "--json", "--invariant", "no_task_lost") == 0
    told = json.loads(capsys.readouterr().out)
    assert [each["fault_id"] for each in told["schedule"]] == ["bad"]
    assert (told["failed"], told["runs"], told["is_minimal"]) == (2, 2, True)
    runs = len(list(Path(of, "shrink", "runs").glob("2*")))
    assert told["runs_in_all"] == runs
    assert cli("shrink", of, "--rate", "2/2", "--invariant", "no_task_lost") == 0
    assert len(list(Path(of, "shrink", "runs").glob("2*"))) == runs
    assert cli("run", "--plan", str(Path(of, "shrink", "smallest"))) == 1


def failing_after_bad(real: Any, fault: Any) -> Any:
    def world(self: FakeMachine, spec: Any) -> Any:
        made, before = real(self, spec), len(fault.fired)
        final = made.runtime.final

        def ended(job_id: str) -> Any:
            bad = "bad" in fault.fired[before:]
            return {**final(job_id), **({"job": {"state": "FAILED"}} if bad else {})}

        made.runtime.final = ended
        return made

    return world


def test_a_run_that_broke_nothing_is_not_shrunk(
    cli: Cli, storm: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    cli("run")
    assert cli("shrink", str(latest())) == 2
    assert "broke no invariant" in capsys.readouterr().err
