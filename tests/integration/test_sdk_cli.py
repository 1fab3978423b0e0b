"""`flashruntime submit` without a coordinator, and the verbs that look at its output directory."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from flashruntime.cli import main
from tests.integration.sdk_runs import PATIENCE_S, ROOT, await_gone, fifo_at

pytestmark = pytest.mark.integration


def flashruntime(*words: str, cwd: Path) -> "subprocess.Popen[str]":
    env = {name: value for name, value in os.environ.items() if not name.startswith("FLASHML_")}
    return subprocess.Popen(
        [sys.executable, "-m", "flashruntime", *words],
        cwd=cwd,
        env={**env, "PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def test_a_run_that_succeeds_shows_its_output_and_ends_with_0(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("import os; print('hello', os.path.exists('train.py'))")
    words = ("submit", "python train.py", "--watch", "--output-dir", "out")
    process = flashruntime(*words, cwd=tmp_path)
    out, err = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 0, err
    assert "hello True\n" in out
    assert "SUCCEEDED" in out
    assert main(["status", str(tmp_path / "out")]) == 0
    assert main(["cancel", str(tmp_path / "out")]) == 1


def test_a_run_that_fails_says_why_and_ends_with_1(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ("submit", "--output-dir", "out", "--max-restarts", "0", "--task-params", "p.json")
    (tmp_path / "p.json").write_text(json.dumps([{"code": 0}, {"code": 3}]))
    run = ["--", "sh", "-c", "echo told; exit {code}"]
    process = flashruntime(*words, *run, cwd=tmp_path)
    out, _ = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 1
    assert "1 of 2 tasks failed; task 1: exit code 3" in out
    assert "its last line was: told)" in out
    place = str(tmp_path / "out")
    assert main(["status", place]) == 0
    assert "exit code 3" in capsys.readouterr().out
    assert main(["status", place, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["tasks"] == {"SUCCEEDED": 1, "FAILED": 1}
    assert main(["logs", place, "--task", "1"]) == 0
    assert capsys.readouterr().out == "told\n"
    assert main(["logs", place, "--task", "1", "--attempt", "7"]) == 1


def test_a_sigterm_is_passed_on_and_the_run_is_recorded_as_cancelled(tmp_path: Path) -> None:
    ready = fifo_at(tmp_path / "ready")
    code = f"import os, time; open({str(ready)!r}, 'w').write(str(os.getpid())); time.sleep(600)"
    process = flashruntime(
        "submit", "--output-dir", "out", "--", "python", "-c", code, cwd=tmp_path
    )
    pid = int(ready.read_text())
    process.send_signal(signal.SIGTERM)
    out, _ = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 1
    assert "CANCELLED" in out
    await_gone(pid)


@pytest.mark.parametrize(
    "words",
    [
        ["--coordinator", "http://127.0.0.1:9", "--output-dir", "out", "true"],
        ["--parallel", "x", "true"],
    ],
)
def test_options_that_do_not_go_together_are_a_matter_of_usage(words: list[str]) -> None:
    assert main(["submit", *words]) == 2


def test_a_local_run_needs_no_http_client(tmp_path: Path) -> None:
    code = (
        "import sys; sys.modules['httpx'] = None; from flashruntime.cli import main; "
        "sys.exit(main(['submit', 'true', '--output-dir', 'out']))"
    )
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    subprocess.run([sys.executable, "-c", code], check=True, cwd=tmp_path, env=env)
