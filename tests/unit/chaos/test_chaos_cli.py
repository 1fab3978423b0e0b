"""The command line: verbs, exit codes, what is written."""

import json
import shutil
import signal
import xml.etree.ElementTree as ET
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from chaos import registry, runner
from chaos.alive import mark
from chaos.cli import main
from chaos.journal import Journal
from chaos.model import CannotRun, Landed, Undo
from chaos.ports import RunSpec, Scene
from chaos.runner import worst
from chaos.testing import FakeMachine

Cli = Callable[..., int]


@pytest.fixture
def cli(
    machine: FakeMachine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Callable[..., int]:
    monkeypatch.chdir(tmp_path)
    return lambda *argv: main(list(argv), machine=lambda: machine)


@pytest.fixture
def storm(fake_registry: Any, kill: Any, action: Any, experiment: Any) -> Any:
    """One experiment with one kill, and its fault."""
    fault = kill()
    fake_registry(fault, experiment(action(5)))
    return fault


def latest() -> Path:
    return Path("chaos-runs/latest")


def test_a_valid_run_exits_0_and_leaves_the_whole_run_directory(cli: Cli, storm: Any) -> None:
    assert cli("run", "storm", "--seed", "3") == 0
    assert Path("chaos-runs/latest").is_symlink()
    names = {path.name for path in latest().iterdir()}
    assert names == {
        "plan.json",
        "history.jsonl",
        "journal.jsonl",
        "logs",
        "verdict.json",
        "report.html",
        "junit.xml",
        "metrics.prom",
    }
    verdict = json.loads((latest() / "verdict.json").read_bytes())
    assert (verdict["verdict"], verdict["seed"]) == ("valid", 3)
    assert 0 < verdict["figures"]["goodput"] <= 1
    assert latest().resolve().name.endswith("-storm-3")
    told = 'chaos_run_verdict{experiment="storm",seed="3",verdict="valid"} 1'
    for metrics in (latest() / "metrics.prom", Path("chaos-runs/metrics.prom")):
        assert told in metrics.read_text(encoding="utf-8")


def test_the_run_ends_with_a_table_what_its_columns_mean_and_the_page_to_open(
    cli: Cli, storm: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    cli("run")
    *_, heads, row, legend, page = capsys.readouterr().out.strip().splitlines()
    assert heads.split()[:3] == ["experiment", "verdict", "landed"]
    assert "goodput ≤" in heads
    assert row.split()[:3] == ["storm", "valid", "1/1"]
    assert all(word in legend for word in ("mttd:", "mttr:", "goodput:", "steps heard of"))
    assert page.startswith("open chaos-runs/")
    assert Path(page.removeprefix("open ")).is_file()


def test_a_missed_fault_exits_3(cli: Cli, storm: Any) -> None:
    storm.landed = Landed.MISSED
    assert cli("run") == 3


def test_a_violated_invariant_exits_1(
    cli: Cli, storm: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = FakeMachine.world

    def world(self: FakeMachine, spec: Any) -> Any:
        made = real(self, spec)
        final = made.runtime.final
        made.runtime.final = lambda job_id: {**final(job_id), "job": {"state": "FAILED"}}  # type: ignore[method-assign]
        return made

    monkeypatch.setattr(FakeMachine, "world", world)
    assert cli("run") == 1
    suite = ET.fromstring((latest() / "junit.xml").read_text())  # noqa: S314 (our own file)
    assert suite.attrib["failures"] == "1"
    assert suite.find("testcase[@name='no_task_lost']/failure") is not None


def test_a_machine_that_lacks_an_image_exits_4_with_the_remedy(
    cli: Cli, storm: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def images(self: Any, planted: str | None) -> Any:
        raise CannotRun("image is missing: run `make chaos`")

    monkeypatch.setattr(FakeMachine, "images", images)
    assert cli("run") == 4
    assert "run `make chaos`" in capsys.readouterr().out
    assert not Path("chaos-runs").exists()


def test_a_stack_that_does_not_start_exits_4_and_is_healed(
    cli: Cli, storm: Any, machine: FakeMachine, monkeypatch: pytest.MonkeyPatch
) -> None:
    def up(self: Any) -> None:
        self.is_up = True
        raise CannotRun("port 8000 is taken")

    monkeypatch.setattr("chaos.testing.FakeSystem.up", up)
    assert cli("run") == 4
    assert machine.runs() == ()
    assert json.loads((latest() / "verdict.json").read_bytes())["reason"] == "port 8000 is taken"


def test_of_a_run_that_could_not_start_all_say_why_and_show_the_log_and_nothing_else(
    cli: Cli, storm: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def up(self: Any) -> None:
        raise CannotRun("worker-1 has exited with 1")

    def save_logs(self: Any, folder: Path) -> None:
        (folder / "worker-1.log").write_text("early\n" * 9 + "the volume is gone\n")
        (folder / "worker-11.log").write_text("all is well\n")

    monkeypatch.setattr("chaos.testing.FakeSystem.up", up)
    monkeypatch.setattr("chaos.testing.FakeSystem.save_logs", save_logs)
    assert cli("run") == 4
    run = capsys.readouterr().out
    assert cli("check", str(latest())) == 4
    check = capsys.readouterr().out
    report = (latest() / "report.html").read_text().partition("</style>")[2]
    for told in (run, check, report):
        assert "cannot run" in told
        assert "worker-1 has exited with 1" in told
        assert "the volume is gone" in told
        assert "all is well" not in told
        assert "unknown" not in told
    assert "<svg" not in report
    verdict = json.loads((latest() / "verdict.json").read_bytes())
    assert (verdict["verdict"], verdict["end"]) == ("unknown", "cannot_run")
    assert verdict["invariants"] == []


@pytest.mark.parametrize("verb", [["run"], ["heal"], ["run", "--dry-run"]])
def test_an_error_of_the_harness_exits_4_not_1_which_means_violated(
    cli: Cli,
    storm: Any,
    verb: list[str],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def broken(self: Any, planted: str | None = None) -> Any:
        raise OSError("the engine hung up")

    monkeypatch.setattr(FakeMachine, "images", broken)
    monkeypatch.setattr(FakeMachine, "runs", broken)
    assert cli(*verb) == 4
    assert "the engine hung up" in capsys.readouterr().err


def test_a_run_directory_that_is_removed_meanwhile_exits_4(
    cli: Cli, storm: Any, machine: FakeMachine, capsys: pytest.CaptureFixture[str]
) -> None:
    storm.during = lambda scene: shutil.rmtree(latest().resolve())
    assert cli("run") == 4
    assert "was removed while its run was under way" in capsys.readouterr().out
    assert machine.runs() == ()


def interrupt(scene: Scene) -> None:
    signal.raise_signal(signal.SIGINT)


def test_an_interrupted_run_exits_130_starts_no_other_and_is_healed(
    cli: Cli, fake_registry: Any, kill: Any, *, action: Any, experiment: Any, machine: FakeMachine
) -> None:
    fault = kill(during=interrupt)
    fake_registry(fault, experiment(action(5), name="one"), experiment(action(5), name="two"))
    assert cli("run") == 130
    assert len(machine.systems) == 1
    assert machine.runs() == ()


@pytest.mark.parametrize(
    ("codes", "expected"),
    [
        ([0, 0], 0),
        ([0, 3], 3),
        ([3, 4, 0], 4),
        ([3, 4, 1], 1),
        ([1, 130], 130),
        ([], 0),
    ],
)
def test_of_several_exit_codes_1_comes_before_4_before_3(codes: list[int], expected: int) -> None:
    assert worst(codes) == expected


@pytest.mark.parametrize(
    "argv",
    [
        ["run", "strom"],
        ["run", "--workers", "1"],
        ["run", "--workers", "99"],
        ["run", "--workers", "0"],
        ["run", "--planted", "roses"],
        ["check", "nowhere"],
        ["replay", "nowhere"],
    ],
)
def test_what_does_not_exist_is_a_usage_error(
    cli: Cli, storm: Any, argv: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli(*argv) == 2
    told = capsys.readouterr()
    assert told.err.startswith("chaos: ")
    assert told.out == ""
    assert not Path("chaos-runs").exists()


def test_an_unknown_plant_is_refused_with_the_known_ones(
    cli: Cli, storm: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli("run", "--planted", "roses") == 2
    said = capsys.readouterr().err
    assert "known: " in said
    assert "no_fencing" in said


@pytest.mark.parametrize("word", ["abc", "-1", "1.5", "9" * 5000])
def test_a_seed_that_is_none_is_told_the_rule(
    cli: Cli, word: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        cli("run", f"--seed={word}")
    assert "must be a whole number from 0" in capsys.readouterr().err


def test_a_mistyped_experiment_is_told_the_likely_name(
    cli: Cli, storm: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    cli("run", "strom")
    assert "did you mean 'storm'?" in capsys.readouterr().err


@pytest.mark.parametrize(
    "argv",
    [
        [],
        ["explode"],
        ["run", "--seed", "x"],
        ["run", "--seed", "-1"],
        ["run", "--seed", str(2**63)],
    ],
)
def test_a_malformed_command_line_exits_2(cli: Cli, argv: list[str]) -> None:
    with pytest.raises(SystemExit) as error:
        cli(*argv)
    assert error.value.code == 2


def test_the_same_seed_gives_the_same_plan_file(cli: Cli, storm: Any) -> None:
    plans = []
    for _ in range(2):
        cli("run", "--seed", "11")
        plans.append((latest() / "plan.json").read_bytes())
    assert plans[0] == plans[1]
    assert len(list(Path("chaos-runs").glob("2*"))) == 2


def test_a_dry_run_shows_schedule_and_targets_and_touches_nothing(
    cli: Cli, storm: Any, machine: FakeMachine, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli("run", "--dry-run") == 0
    shown = capsys.readouterr().out
    assert "kill-1" in shown
    assert "holder of main" in shown
    assert "step_at_least=5" in shown
    assert machine.systems == {}
    assert not Path("chaos-runs").exists()


def test_a_dry_run_needs_no_engine(
    cli: Cli, storm: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def images(self: Any, planted: str | None) -> Any:
        raise CannotRun("no engine")

    monkeypatch.setattr(FakeMachine, "images", images)
    assert cli("run", "--dry-run", "--json") == 0
    (plan,) = json.loads(capsys.readouterr().out)
    assert plan["images"] == {}


@pytest.mark.parametrize("wrong", ["kind", "invariants"])
def test_a_dry_run_catches_an_experiment_that_names_what_there_is_not(
    cli: Cli,
    fake_registry: Any,
    *,
    kill: Any,
    action: Any,
    experiment: Any,
    wrong: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    change: dict[str, Any] = {"kind": "wish"} if wrong == "kind" else {}
    storm = experiment(replace(action(5), **change))
    storm = replace(storm, invariants=("wish",)) if wrong == "invariants" else storm
    fake_registry(kill(), storm)
    assert cli("run", "--dry-run") == 2
    told = capsys.readouterr().err
    assert "'wish'; known: " in told


def test_json_goes_to_stdout_and_progress_to_stderr(
    cli: Cli, storm: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli("run", "--json") == 0
    captured = capsys.readouterr()
    (result,) = json.loads(captured.out)
    assert (result["verdict"], result["exit_code"]) == ("valid", 0)
    assert "starting the stack" in captured.err


def test_list_names_every_experiment(
    cli: Cli, storm: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli("list", "--json") == 0
    assert [entry["name"] for entry in json.loads(capsys.readouterr().out)] == ["storm"]
    assert cli("list") == 0
    assert "kills a worker" in capsys.readouterr().out


def test_check_judges_a_saved_run_again(
    cli: Cli, storm: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli("run") == 0
    before = (latest() / "verdict.json").read_bytes()
    assert cli("check", str(latest())) == 0
    capsys.readouterr()
    assert cli("check", str(latest()), "--json") == 0
    assert json.loads(capsys.readouterr().out) == json.loads(before)


def test_check_judges_by_more_invariants_on_request(
    cli: Cli, storm: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    cli("run")
    more = ("--invariant", "rejection_recorded", "--invariant", "fenced_holder")
    assert cli("check", str(latest()), *more) == 3
    shown = capsys.readouterr().out
    assert "rejection_recorded" in shown
    assert cli("check", str(latest()), "--invariant", "wishes") == 2
    assert "no invariant 'wishes'; known: " in capsys.readouterr().err


def test_check_of_a_history_that_was_changed_finds_it(cli: Cli, storm: Any) -> None:
    cli("run")
    path = latest() / "history.jsonl"
    path.write_text(path.read_text().replace('"landed": "landed"', '"landed": "missed"'))
    assert cli("check", str(latest())) == 3
    path.write_text(path.read_text().replace('"state": "SUCCEEDED"', '"state": "FAILED"'))
    assert cli("check", str(latest())) == 1


def test_check_of_a_history_that_cannot_be_read_is_unknown(cli: Cli, storm: Any) -> None:
    cli("run")
    (latest() / "history.jsonl").write_text("not a record\n")
    assert cli("check", str(latest())) == 3


def test_replay_runs_the_saved_plan_again(cli: Cli, storm: Any) -> None:
    cli("run", "--seed", "5", "--workers", "4")
    first = latest().resolve()
    assert cli("replay", str(first)) == 0
    assert latest().resolve() != first
    assert (latest() / "plan.json").read_bytes() == (first / "plan.json").read_bytes()


def test_a_failed_run_is_kept_on_request_until_heal(
    cli: Cli, storm: Any, machine: FakeMachine, capsys: pytest.CaptureFixture[str]
) -> None:
    storm.landed = Landed.MISSED
    assert cli("run", "--keep-failed") == 3
    assert "python -m chaos heal" in capsys.readouterr().out
    assert len(machine.runs()) == 1
    assert cli("heal") == 0
    assert machine.runs() == ()


def test_a_valid_run_is_not_kept(cli: Cli, storm: Any, machine: FakeMachine) -> None:
    assert cli("run", "--keep-failed") == 0
    assert machine.runs() == ()


def test_a_planted_bug_is_part_of_the_plan(cli: Cli, storm: Any) -> None:
    cli("run", "--planted", "no_fencing")
    plan = json.loads((latest() / "plan.json").read_bytes())
    assert plan["planted"] == "no_fencing"
    assert "planted:no_fencing" in plan["images"]


def killed_run(machine: FakeMachine, folder: Path, run_id: str) -> None:
    """Leave what a run leaves that was killed in the middle of a fault."""
    folder.mkdir(parents=True)
    journal = Journal(folder / "journal.jsonl")
    journal.promise(Undo("stack", run_id, None, "stack_down"))
    journal.promise(Undo("f/0", run_id, "f", "start_container", {"service": "worker-1"}))
    journal.close()
    machine.world(RunSpec(run_id, 3)).stack.up()


def test_heal_replays_the_journal_newest_first_and_is_idempotent(
    cli: Cli, machine: FakeMachine
) -> None:
    killed_run(machine, Path("chaos-runs/one"), "run-dead")
    assert cli("heal") == 0
    assert [undo.action for undo in machine.undone] == ["start_container", "stack_down"]
    assert machine.runs() == ()
    assert cli("heal") == 0
    assert len(machine.undone) == 2


def test_heal_finds_a_run_whose_directory_is_gone(cli: Cli, machine: FakeMachine) -> None:
    machine.world(RunSpec("run-orphan", 3)).stack.up()
    assert cli("heal") == 0
    assert machine.runs() == ()


def test_heal_leaves_a_run_alone_that_is_under_way(
    cli: Cli, machine: FakeMachine, capsys: pytest.CaptureFixture[str]
) -> None:
    killed_run(machine, Path("chaos-runs/one"), "run-alive")
    Path("chaos-runs/latest").symlink_to("one")
    held = mark("run-alive")
    assert held is not None
    try:
        assert cli("heal") == 0
        assert machine.runs() == ("run-alive",)
        assert capsys.readouterr().out.count("left alone") == 1
    finally:
        held.close()
    assert cli("heal") == 0
    assert machine.runs() == ()


def test_a_journal_that_cannot_be_read_does_not_stop_the_healing(
    cli: Cli, machine: FakeMachine, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("chaos-runs/one/journal.jsonl").mkdir(parents=True)
    killed_run(machine, Path("chaos-runs/two"), "run-dead")
    machine.world(RunSpec("run-orphan", 3)).stack.up()
    assert cli("heal") == 4
    assert machine.runs() == ()
    assert "chaos-runs/one/journal.jsonl cannot be used" in capsys.readouterr().out


def test_heal_that_cannot_undo_everything_says_what_and_exits_4(
    cli: Cli, machine: FakeMachine, capsys: pytest.CaptureFixture[str]
) -> None:
    killed_run(machine, Path("chaos-runs/one"), "run-dead")
    machine.failing = {"start_container"}
    assert cli("heal") == 4
    assert "start_container does not work today" in capsys.readouterr().out
    assert machine.runs() == ()


def test_every_module_of_the_packages_is_found() -> None:
    assert "fenced_holder" in {found.name for found in registry.invariants(["fenced_holder"])}
    for experiment in registry.experiments():
        runner.prepare(experiment, runner.Options(), {})
