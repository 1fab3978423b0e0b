"""An experiment in the Chaos Toolkit's format, and what the toolkit calls."""

import inspect
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from chaos import chaostoolkit
from chaos.cli import main

HARNESS = """
import json, sys
open(sys.argv[0] + ".told", "a").write(json.dumps(sys.argv[1:]) + "\\n")
if "run" in sys.argv:
    print(json.dumps([{"run_dir": "runs/one"}]))
print("the engine is gone", file=sys.stderr)
sys.exit(int(open(sys.argv[0] + ".code").read()))
"""


def exported(capsys: pytest.CaptureFixture[str], *options: str) -> dict[str, Any]:
    assert main(["export", "zombie_partition", *options]) == 0
    told: dict[str, Any] = json.loads(capsys.readouterr().out)
    return told


def activities(told: dict[str, Any]) -> list[dict[str, Any]]:
    return [*told["steady-state-hypothesis"]["probes"], *told["method"], *told["rollbacks"]]


def test_it_has_hypothesis_method_and_rollback_that_call_what_there_is(
    capsys: pytest.CaptureFixture[str],
) -> None:
    told = exported(capsys, "--seed", "3", "--workers", "4")
    assert [each["type"] for each in activities(told)] == ["probe", "action", "action"]
    for each in activities(told):
        provider = each["provider"]
        assert (provider["type"], provider["module"]) == ("python", "chaos.chaostoolkit")
        function = getattr(chaostoolkit, provider["func"])
        inspect.signature(function).bind(**provider["arguments"])
    (action,) = told["method"]
    assert action["provider"]["arguments"]["seed"] == 3
    assert action["provider"]["arguments"]["options"] == ["--workers", "4"]
    assert told["runtime"]["rollbacks"]["strategy"] == "always"


def test_it_tells_readers_what_will_be_done(capsys: pytest.CaptureFixture[str]) -> None:
    (extension,) = exported(capsys)["extensions"]
    assert [each["kind"] for each in extension["schedule"]] == ["latency", "black_hole", "reset"]
    assert exported(capsys)["tags"] == ["flashruntime", "black_hole", "latency", "reset"]


def test_it_can_be_written_to_a_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    target = tmp_path / "e.json"
    assert main(["export", "zombie_partition", "--to", str(target)]) == 0
    assert json.loads(target.read_text("utf-8"))["title"] == "zombie_partition, seed 1"
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize("options", [["nothing"], ["zombie_partition", "--format", "litmus"]])
def test_what_there_is_not_is_a_usage_error(options: list[str]) -> None:
    try:
        code: Any = main(["export", *options])
    except SystemExit as ended:
        code = ended.code
    assert code == 2


@pytest.fixture
def harness(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[int], str]:
    """A stand-in for the harness, which ends with the code that the test wants."""
    script = tmp_path / "harness.py"
    script.write_text(HARNESS)
    python = tmp_path / "python"
    python.write_text(f'#!/bin/sh\nshift 2\nexec {sys.executable} {script} "$@"\n')
    python.chmod(0o755)
    monkeypatch.setattr(chaostoolkit, "_verdicts", {})

    def ends(code: int) -> str:
        (tmp_path / "harness.py.code").write_text(str(code))
        return str(python)

    return ends


@pytest.mark.parametrize(("code", "word"), [(0, "valid"), (1, "violated"), (3, "unknown")])
def test_each_exit_code_with_a_verdict_becomes_it(
    harness: Callable[[int], str], code: int, word: str
) -> None:
    assert chaostoolkit.verdict("e", 1) == "not run"
    found = chaostoolkit.run("e", 1, python=harness(code), options=["--count", "2"])
    assert found == {"exit_code": code, "verdict": word, "run_dir": "runs/one"}
    assert chaostoolkit.verdict("e", 1) == word
    assert chaostoolkit.verdict("e", 2) == "not run"


@pytest.mark.parametrize("code", [2, 4, 130])
def test_a_run_that_could_not_be_made_is_a_failed_activity_and_no_steady_state(
    harness: Callable[[int], str], code: int
) -> None:
    with pytest.raises(RuntimeError, match="the engine is gone"):
        chaostoolkit.run("e", 1, python=harness(code))
    assert chaostoolkit.verdict("e", 1) == "cannot run"


def test_healing_that_fails_is_a_failed_activity(harness: Callable[[int], str]) -> None:
    assert chaostoolkit.heal(python=harness(0)) == ""
    with pytest.raises(RuntimeError, match="exit code 4"):
        chaostoolkit.heal(python=harness(4))


def test_the_toolkit_needs_nothing_but_the_standard_library_for_it() -> None:
    code = "import sys, chaos.chaostoolkit; print('\\n'.join(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    loaded = {name.partition(".")[0] for name in done.stdout.split()}
    assert not {"docker", "httpx", "pydantic", "rich", "flashruntime"} & loaded
