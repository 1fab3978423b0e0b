"""The command line against a real coordinator and a real worker."""

import json
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from flashruntime.cli import main
from tests.integration.worker_stack import Service, Stack

pytestmark = pytest.mark.integration


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    with Stack(tmp_path_factory.mktemp("stack")) as running:
        running.start_worker("only")
        yield running


@pytest.fixture
def source(tmp_path: Path) -> Path:
    (tmp_path / "pkg").mkdir()
    (tmp_path / "pkg/__init__.py").write_text("WORD = 'imported'")
    (tmp_path / "train.py").write_text(
        "import json, sys, pkg\n"
        "print(pkg.WORD, sys.argv[1:])\n"
        "json.dump({'lr': float(sys.argv[1])}, open('metrics.json', 'w'))\n"
    )
    return tmp_path


def test_submit_and_watch_shows_the_result_and_exits_with_zero(
    stack: Stack, source: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["submit", f"{sys.executable} train.py {{lr}}", "--param", "lr=0.5", "--watch"]
    assert main([*words, "--source", str(source), "--coordinator", stack.url]) == 0
    captured = capsys.readouterr()
    assert "uploading 2 files" in captured.err
    lines = captured.out.splitlines()
    job_id = lines[0]
    assert job_id.startswith("job-")
    assert "SUCCEEDED" in captured.out
    assert "lr=0.5" in lines[-1]
    assert "\r" not in captured.out, "plain lines where there is no terminal"
    assert main(["logs", job_id, "--coordinator", stack.url]) == 0
    assert capsys.readouterr().out == "imported ['0.5']\n"
    assert main(["status", job_id, "--json", "--coordinator", stack.url]) == 0
    shown = json.loads(capsys.readouterr().out)
    assert shown["job"]["state"] == "SUCCEEDED"
    assert shown["tasks"][0]["metrics"] == {"lr": 0.5}


def test_watching_a_job_that_fails_shows_why_and_exits_with_one(
    stack: Stack, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["submit", "--coordinator", stack.url, "--watch", "--"]
    assert main([*words, sys.executable, "-c", "print('last words'); {}['val_acc']"]) == 1
    shown = capsys.readouterr().out
    assert "KeyError" in shown
    assert "last words" in shown


def test_a_fan_out_runs_one_task_for_each_set_of_parameters(
    stack: Stack, source: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    params = source.parent / "params.json"
    params.write_text('[{"lr": 1}, {"lr": 2}, {"lr": 3}]')
    words = ["submit", f"{sys.executable} train.py {{lr}}", "--task-params", str(params)]
    assert main([*words, "--source", str(source), "--coordinator", stack.url, "--watch"]) == 0
    assert "lr=3" in capsys.readouterr().out


def test_a_cancelled_job_says_so(stack: Stack, capsys: pytest.CaptureFixture[str]) -> None:
    job_id = stack.submit("import time; time.sleep(3600)")
    assert main(["cancel", job_id, "--coordinator", stack.url]) == 0
    assert main(["status", job_id, "--coordinator", stack.url]) == 0
    assert capsys.readouterr().out.count("CANCELLED") >= 2


def test_a_job_that_does_not_exist_and_a_bad_placeholder_are_one_line(
    stack: Stack, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["status", "job-none", "--coordinator", stack.url]) == 1
    assert main(["submit", "echo", "--param", "lr=1", "--coordinator", stack.url]) == 2
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 2
    assert "job-none" in lines[0]
    assert "'lr'" in lines[1]


def test_a_coordinator_that_cannot_start_says_why_and_exits_with_one(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    env = {
        "FLASHML_LEDGER_DIR": str(tmp_path / "file/ledger"),
        "FLASHML_ARTIFACT_DIR": str(tmp_path / "artifacts"),
    }
    refused = Service(["serve", "--port", "0"], env, tmp_path)
    refused.await_line("FLASHML_LEDGER_DIR")
    assert refused.exit_code() == 1
