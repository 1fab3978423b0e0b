"""Runs: what breaks, what is interrupted, what is kept; the registry; the command line."""

import json
import os
import signal
import sys
import types
from collections.abc import Callable
from io import StringIO
from pathlib import Path

import pytest

from benchmarks import cli, inside, registry, runner
from benchmarks.console import Screen
from benchmarks.runner import Options
from benchmarks.scenario import Bench, Scenario
from benchmarks.schema import BenchError, Host, Target, UsageError, load

Build = Callable[..., Scenario]


quiet = Screen(StringIO())


def fine(bench: Bench) -> None:
    bench.report([1.0])


def broken(bench: Bench) -> None:
    bench.report([2.0])
    raise ValueError("no such luck")


def test_a_broken_scenario_costs_neither_the_others_nor_its_own_figures(
    scenario: Build, options: Options
) -> None:
    chosen = [scenario(broken, name="bad"), scenario(fine, name="good")]
    document, interrupted = runner.run(chosen, options, quiet)
    assert [row.scenario for row in document.rows] == ["bad", "good"]
    assert document.broken[0].error == "ValueError: no such luck"
    assert document.complete
    assert not interrupted
    assert load(options.out) == document


def test_a_scenario_that_reports_nothing_is_broken(scenario: Build, options: Options) -> None:
    document, _ = runner.run([scenario(lambda _: None)], options, quiet)
    assert "without reporting" in document.broken[0].error


def test_an_interrupt_keeps_what_was_measured(scenario: Build, options: Options) -> None:
    def interrupted(bench: Bench) -> None:
        bench.report([3.0])
        os.kill(os.getpid(), signal.SIGINT)
        signal.pause()

    chosen = [scenario(fine, name="a"), scenario(interrupted, name="b"), scenario(fine, name="c")]
    document, was = runner.run(chosen, options, quiet)
    assert was
    assert [row.scenario for row in document.rows] == ["a", "b"]
    assert not document.complete
    assert load(options.out).notes[-1].startswith("interrupted: what was not measured")


def test_the_document_is_on_disk_after_each_scenario(scenario: Build, options: Options) -> None:
    seen: list[int] = []

    def looking(bench: Bench) -> None:
        seen.append(len(load(options.out).rows))
        bench.report([1.0])

    runner.run([scenario(fine, name="a"), scenario(looking, name="b")], options, quiet)
    assert seen == [1]


def test_two_figures_of_one_name_break_their_scenario_alone(
    scenario: Build, options: Options
) -> None:
    def twice(bench: Bench) -> None:
        bench.report([1.0])
        bench.report([2.0])

    document, _ = runner.run([scenario(twice), scenario(fine, name="b")], options, quiet)
    assert len(document.rows) == 2
    assert "reports '' twice" in document.broken[0].error


@pytest.mark.parametrize(("load", "told"), [(0.1, False), (1.9, True), (None, False)])
def test_a_busy_machine_is_noted(  # noqa: PLR0917 (fixtures)
    load: float | None,
    told: bool,
    scenario: Build,
    options: Options,
    host: Host,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    busy = host.model_copy(update={"load_1m": load})
    monkeypatch.setattr(runner.host, "describe", lambda *_: busy)
    document, _ = runner.run([scenario(fine)], options, quiet)
    assert any("busy" in note for note in document.notes) is told


def test_a_scenario_that_hangs_is_ended() -> None:
    with pytest.raises(BenchError, match="longer than 0 s"), runner.time_limit(0.05):
        signal.pause()


def test_a_scenario_not_written_for_a_target_says_so(scenario: Build, tmp_path: Path) -> None:
    options = Options(out=tmp_path / "o.json", scratch=tmp_path, command="x", target=Target.COMPOSE)
    document, _ = runner.run([scenario(broken)], options, quiet)
    assert document.rows[0].reason == "does not run on the target compose"
    assert document.broken == []


def test_scratch_files_are_gone_afterwards(scenario: Build, options: Options) -> None:
    def writing(bench: Bench) -> None:
        (bench.folder() / "big").write_bytes(b"x" * 1000)
        bench.report([1.0])

    runner.run([scenario(writing)], options, quiet)
    assert [path.name for path in options.scratch.iterdir()] == ["out.json"]


def package_of(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, **files: str) -> types.ModuleType:
    name = f"pack_{tmp_path.name}".replace("-", "_")
    folder = tmp_path / name
    folder.mkdir()
    for stem, text in files.items():
        (folder / f"{stem}.py").write_text(text)
    package = types.ModuleType(name)
    package.__path__ = [str(folder)]
    monkeypatch.setitem(sys.modules, name, package)
    return package


GOOD = '''"""By measuring."""
from benchmarks.scenario import Scenario
SCENARIO = Scenario(name="x", section="performance", hypothesis="h", method=__doc__, unit="s",
                    budget_s=1, run=print)
'''


@pytest.mark.parametrize(
    ("files", "message"),
    [
        ({"a": "x = 1"}, "has no SCENARIO"),
        ({"a": GOOD, "b": GOOD}, "'x' is taken"),
        ({"a": GOOD.replace("By measuring.", "")}, "does not state its method"),
    ],
)
def test_the_registry_is_loud(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, files: dict[str, str], message: str
) -> None:
    with pytest.raises(BenchError, match=message):
        registry.scenarios(package_of(tmp_path, monkeypatch, **files))


def test_every_scenario_states_what_it_claims_and_measures() -> None:
    for scenario in registry.scenarios():
        assert scenario.hypothesis.endswith(".")
        assert len((scenario.method or "").split()) > 20
        assert scenario.budget_s > 0


def test_the_suite_fits_into_an_hour() -> None:
    """The page's eleven with five repeats on two cores."""
    eleven = {
        "adoption_cost", "fanout_throughput", "hpo_sweep", "launch_overhead", "loop_overhead",
        "recovery_economics", "submit_latency", "checkpoint_integrity", "crash_storm",
        "fault_recovery_matrix", "lease_recovery_latency",
    }  # fmt: skip
    assert sum(s.budget_s for s in registry.scenarios() if s.name in eleven) <= 3600


def test_an_unknown_scenario_is_answered_with_the_nearest(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert cli.main(["run", "--scenario", "submit_latancy"]) == cli.USAGE
    assert "did you mean 'submit_latency'?" in capsys.readouterr().err


@pytest.mark.parametrize(
    "words", [["run"], ["run", "--all", "--repeats", "0"], ["fly"], ["run", "--target", "moon"]]
)
def test_a_wrong_command_line_ends_with_2(words: list[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        cli.main(words)
    assert ended.value.code == cli.USAGE


@pytest.mark.parametrize(("run", "code"), [(fine, cli.OK), (broken, cli.BROKEN)])
def test_the_exit_code_tells_of_a_broken_scenario(
    run: Callable[[Bench], None],
    code: int,
    scenario: Build,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(registry, "scenarios", lambda: (scenario(run),))
    out = tmp_path / "o.json"
    words = ["run", "--all", "--here", "--out", str(out), "--scratch", str(tmp_path / "s")]
    assert cli.main(words) == code
    assert json.loads(out.read_text())["command"].startswith("python -m benchmarks run --all")
    assert list((tmp_path / "s").iterdir()) == []


def test_without_torch_and_without_the_image_the_command_says_what_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(inside, "IMAGES", ("flashruntime/there-is-none:local",))
    monkeypatch.setattr(cli.host, "installed", lambda _: None)
    words = ["run", "--all", "--out", str(tmp_path / "o.json"), "--scratch", str(tmp_path / "s")]
    assert cli.main(words) == cli.USAGE
    assert "`make bench` makes it" in capsys.readouterr().err


def test_compare_and_render_read_documents(
    scenario: Build, options: Options, capsys: pytest.CaptureFixture[str]
) -> None:
    runner.run([scenario(fine)], options, quiet)
    out = str(options.out)
    assert cli.main(["compare", out, out]) == cli.OK
    assert "| some | 1 | 1 | s | not significant |" in capsys.readouterr().out
    assert cli.main(["render", out]) == cli.OK
    assert "## some" in capsys.readouterr().out
    assert cli.main(["compare", out, "/none"]) == cli.USAGE


def test_off_a_terminal_rounds_are_not_printed() -> None:
    stream = StringIO()
    screen = Screen(stream)
    with screen.live():
        screen.progress("[1/1] some: round 3/5")
        screen.say("[1/1] some: 2 s")
    assert stream.getvalue() == "[1/1] some: 2 s\n"


def test_unknown_scenario_names_are_usage_errors() -> None:
    with pytest.raises(UsageError):
        registry.chosen(["none"])
