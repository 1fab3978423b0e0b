"""`flashruntime verify-resume` on real processes: it proves what is exact and names what is not."""

import re
import signal
import sys
import textwrap
from pathlib import Path

import pytest

from flashruntime.cli import main
from flashruntime.launch.spec import LaunchSpec
from flashruntime.sdk.kills import KillingLauncher, Moment
from tests.integration.sdk_runs import PATIENCE_S, ROOT, await_gone

pytestmark = pytest.mark.integration

HEAD = """
    import json, os, random, sys
    from flashruntime.attempt import Attempt
    attempt = Attempt.from_env()
    random.seed(1)
    state, first = {"total": 0.0}, 0
    found = attempt.resume()
    if found:
        first = found.step
        state = json.loads(found.parts["state.json"])
"""
RESTORE = """
        version, words, gauss = json.loads(found.parts["rng.json"])
        random.setstate((version, tuple(words), gauss))
"""
LOOP = """
    for step in range(first + 1, 31):
        state["total"] += random.random()
        if step % 3 == 0:
            rng = json.dumps(random.getstate()).encode()
            attempt.save(step, {"state.json": json.dumps(state).encode(), "rng.json": rng})
        else:
            attempt.report(step)
    attempt.log({**state, "resumed_from": first, "executed": 30 - first})
"""


@pytest.fixture
def verify(tmp_path, monkeypatch, capsys):
    """Run the verb on a script; return its exit code, and what it printed."""
    monkeypatch.setenv("PYTHONPATH", str(ROOT))

    def run(code: str, *options: str) -> tuple[int, str]:
        source = tmp_path / "source"
        source.mkdir()
        (source / "train.py").write_text(textwrap.dedent(code))
        words = ("--source", str(source), "--output-dir", str(tmp_path / "out"), *options)
        status = main(["verify-resume", *words, "--", sys.executable, "train.py"])
        shown = capsys.readouterr()
        return status, shown.out + shown.err

    return run


def test_a_script_that_restores_everything_is_proven_exact(verify, tmp_path: Path) -> None:
    status, shown = verify(HEAD + RESTORE + LOOP, "--kills", "4", "--seed", "3")
    assert status == 0, shown
    assert "proven: 4 of 4 kills landed" in shown
    assert "checkpoint of step 30: 2 parts" in shown
    assert "metrics: total; not compared: executed, resumed_from" in shown
    deaths = (tmp_path / "out" / "killed-1" / "journal.jsonl").read_text()
    assert deaths.count("SIGKILL by verify-resume") >= 4


def test_a_forgotten_random_stream_is_named(verify) -> None:
    status, shown = verify(HEAD + LOOP, "--kills", "2", "--seed", "3")
    assert status == 1
    assert "NOT PROVEN: the resumed run differs from the undisturbed one" in shown
    assert re.search(r"differs: part rng\.json\.1\.\d+: \d+ instead of \d+", shown)
    assert "differs: metric.total: " in shown


def test_a_script_that_never_checkpoints_proves_nothing(verify) -> None:
    code = HEAD + LOOP.replace("step % 3 == 0", "False")
    status, shown = verify(code, "--kills", "1", "--seed", "3")
    assert status == 1
    assert "nothing to compare" in shown
    assert "metrics: total" in shown
    assert "1 landed (1 began anew)" in shown


def test_a_script_without_the_helper_is_killed_by_time(verify) -> None:
    code = "import time\nwhile time.process_time() < 0.3: pass"
    status, shown = verify(code, "--kills", "2", "--seed", "3")
    assert status == 1
    assert "nothing to compare" in shown
    assert re.search(r"kill 2 of 2: 0\.\d+ s after its start, no step shown", shown)
    assert "2 landed (2 went on from an unknown step)" in shown


def test_a_script_that_differs_by_itself_is_not_blamed_on_the_kills(verify) -> None:
    code = (HEAD + RESTORE + LOOP).replace("random.seed(1)", "random.seed()")
    status, shown = verify(code, "--kills", "1", "--seed", "3")
    assert status == 1
    assert "two undisturbed runs differ too" in shown


def test_a_checkpoint_that_is_missing_at_the_end_is_said_to_be(verify) -> None:
    code = (HEAD + RESTORE + LOOP).replace("step % 3", "step % 7")
    status, shown = verify(code, "--kills", "2", "--seed", "3")
    assert status == 0, shown
    assert "of the steps 29 to 30 only metrics tell" in shown


def test_a_script_that_fails_on_resume_only_is_told_apart(verify) -> None:
    code = HEAD + "        raise ValueError('cannot resume')\n" + LOOP
    status, shown = verify(code, "--kills", "2", "--seed", "3")
    assert status == 1
    assert "the run with kills failed, the undisturbed one did not: ValueError" in shown


def test_a_script_that_fails_undisturbed_is_told_with_its_output(verify) -> None:
    status, shown = verify("print('my last words'); raise SystemExit(3)", "--kills", "1")
    assert status == 1
    assert "the undisturbed run failed" in shown
    assert "my last words" in shown


def test_kills_that_miss_are_reported_and_never_counted(verify) -> None:
    """Without steps kills go by time; here the disturbed runs are over long before."""
    code = """
        import os, time
        while "undisturbed" in os.getcwd() and time.process_time() < 0.6:
            pass
    """
    status, shown = verify(code, "--kills", "1", "--seed", "23")
    assert status == 1
    assert "only 0 of 1 kills landed" in shown
    assert "0 landed (none), 3 missed" in shown


def test_a_kill_takes_all_below_at_once_and_counts_as_no_failure_of_the_script(
    tmp_path: Path,
) -> None:
    """A child in a session of its own, which would write a file on SIGTERM, must not get to it."""
    child = "import os, signal; signal.signal(signal.SIGTERM, lambda *_: open('notice', 'w')); "
    child += "print(os.getpid(), flush=True); signal.pause(); signal.pause()"
    code = f"""
import json, os, signal, subprocess, sys
argv = [sys.executable, "-S", "-c", {child!r}]
below = subprocess.Popen(argv, stdout=subprocess.PIPE, start_new_session=True)
with open("pid", "w") as file:
    file.write(below.stdout.readline().decode())
with open("step.new", "w") as file:
    json.dump({{"step": 5}}, file)
os.rename("step.new", "step.json")
signal.pause()
"""
    step_file = tmp_path / "step.json"
    env = {"FLASHML_ATTEMPT_ID": "a-1", "FLASHML_STEP_FILE": str(step_file)}
    launcher = KillingLauncher([Moment(5, 0.0)], lambda _: None)
    spec = LaunchSpec((sys.executable, "-S", "-c", code), tmp_path, env, tmp_path / "log")
    process = launcher.launch(spec, lambda: None)
    evidence = process.wait(PATIENCE_S)
    assert evidence is not None, (tmp_path / "log").read_text()
    assert (evidence.ended_by, evidence.signal) == ("stopped", signal.SIGKILL)
    assert process.landed
    await_gone(int((tmp_path / "pid").read_text()))
    assert not (tmp_path / "notice").exists()
    assert process.progress.step == 5


def test_a_process_that_ends_before_its_moment_was_not_killed(tmp_path: Path) -> None:
    env = {"FLASHML_ATTEMPT_ID": "a-1", "FLASHML_STEP_FILE": str(tmp_path / "step.json")}
    launcher = KillingLauncher([Moment(5, 0.0)], lambda _: None)
    process = launcher.launch(LaunchSpec(("true",), tmp_path, env, tmp_path / "log"), lambda: None)
    evidence = process.wait(PATIENCE_S)
    assert evidence is not None
    assert evidence.exit_code == 0
    assert not process.landed
