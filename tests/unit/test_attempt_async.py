"""Saves behind the caller: what is captured, what is told when, and how a process ends."""

import errno
import json
import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
from pathlib import Path

import pytest

from flashruntime.attempt import Attempt, Settings
from flashruntime.checkpoint import commit, snapshot
from flashruntime.checkpoint.snapshot import Saver
from flashruntime.errors import CheckpointError, InvalidInput, Superseded

pytestmark = pytest.mark.integration

ROOT = Path(__file__).parents[2]


@pytest.fixture
def attempt(tmp_path):
    def build(number=0):
        private = tmp_path / f"attempt-{number}"
        private.mkdir(exist_ok=True)
        env = {
            "FLASHML_CKPT_DIR": str(tmp_path / "ckpt"),
            "FLASHML_STEP_FILE": str(private / "step.json"),
            "FLASHML_JOB_ID": "job-1",
            "FLASHML_ATTEMPT_ID": f"lease-{number}",
            "FLASHML_RESTART_COUNT": str(number),
        }
        return Attempt(Settings.from_env(env))

    return build


@pytest.fixture
def held(monkeypatch):
    """Hold the background save before it makes anything durable, until the event is set."""
    go = threading.Event()
    original = commit._write_parts

    def waiting(folder, parts):
        go.wait(10)
        return original(folder, parts)

    monkeypatch.setattr(commit, "_write_parts", waiting)
    yield go
    go.set()


def told(attempt):
    return json.loads(attempt.settings.step_file.read_text())


def events(attempt):
    path = attempt.settings.step_file.with_name("events.jsonl")
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def test_063_the_state_is_that_of_the_call_and_buffers_are_reused(attempt, held):
    first, weights = attempt(), bytearray(1000)
    first.save_async(1, {"w": weights, "n": b"1"})
    weights[:] = b"9" * 1000
    held.set()
    first.save_async(2, {"w": weights, "n": b"22"})
    first.flush()
    assert dict(attempt(1).resume().parts) == {"w": b"9" * 1000, "n": b"22"}
    (first.settings.ckpt_dir / "step-000002" / "w").write_bytes(b"x")
    assert dict(attempt(2).resume().parts) == {"w": bytes(1000), "n": b"1"}


def test_a_checkpoint_counts_only_once_it_is_durable(attempt, held, capsys):
    first = attempt()
    first.save_async(5, {"w": b"5"})
    first.report(6)
    assert told(first) == {"step": 6, "resumed_from": None, "checkpoint_step": None}
    assert events(first) == []
    held.set()
    first.flush()
    assert told(first) == {"step": 6, "resumed_from": None, "checkpoint_step": 5}
    (committed,) = events(first)
    assert (committed["event"], committed["step"]) == ("checkpoint_committed", 5)
    assert 0 < committed["stall_s"] < committed["duration_s"]
    assert json.loads(capsys.readouterr().out) == committed


def test_a_line_is_never_printed_from_another_thread(attempt, capsys):
    first = attempt()
    first.save_async(5, {"w": b"5"})
    first._saver._done.wait(10)
    assert capsys.readouterr().out == ""
    first.report(6)
    assert json.loads(capsys.readouterr().out)["step"] == 5


def test_one_save_is_in_flight_and_the_wait_for_it_is_stall(attempt, held):
    first = attempt()
    first.save_async(1, {"w": b"1"})
    threading.Timer(0.2, held.set).start()
    stall_s = first.save_async(2, {"w": b"2"})
    first.flush()
    assert stall_s >= 0.15
    assert [event["stall_s"] >= 0.15 for event in events(first)] == [False, True]


def fail(error):
    def failing(*_):
        raise error

    return failing


def test_c14_a_failed_save_is_raised_once_by_the_next_call_and_harms_nothing(attempt, monkeypatch):
    first = attempt()
    first.save_async(1, {"w": b"1"})
    first.flush()
    full = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    with monkeypatch.context() as poor:
        poor.setattr(commit.files, "write_all", fail(full))
        first.save_async(2, {"w": b"2"})
        first._saver._done.wait(10)
    with pytest.raises(CheckpointError, match=r"step 2 could not be written.*\[Errno 28\]"):
        first.save_async(3, {"w": b"3"})
    assert told(first)["checkpoint_step"] == 1
    first.save_async(4, {"w": b"4"})
    first.flush()
    assert attempt(1).resume().step == 4


def test_a_superseded_attempt_is_told_at_its_next_call(attempt):
    first = attempt()
    first.save_async(1, {"w": b"1"})
    first.flush()
    attempt(1).resume()
    first.save_async(2, {"w": b"2"})
    with pytest.raises(Superseded, match="this process must stop"):
        first.save_async(3, {"w": b"3"})


@pytest.mark.parametrize("parts", [{}, {"../w": b"1"}, {"w": b""}])
def test_what_cannot_be_stored_is_refused_at_the_call(attempt, parts):
    with pytest.raises(InvalidInput):
        attempt().save_async(1, parts)


SCRIPT = """
import os, sys
from flashruntime.attempt import Attempt
from flashruntime.checkpoint import commit
from flashruntime.checkpoint.snapshot import Saver
attempt = Attempt.from_env()
attempt.resume()
attempt.save_async(1, {"w": bytes(20_000_000)})
"""


def run(tmp_path, tail, script=SCRIPT, **env):
    code = textwrap.dedent(script) + textwrap.dedent(tail)
    return subprocess.run(
        [sys.executable, "-c", code],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT), **env},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def committed(tmp_path):
    return sorted(path.name for path in (tmp_path / "flashruntime-ckpt").glob("step-*"))


@pytest.mark.integration
@pytest.mark.parametrize(
    ("tail", "code"),
    [("", 0), ("sys.exit(3)", 3), ("raise ValueError('mine')", 1),
     ("import threading; threading.Thread(target=attempt.flush).start()", 0)],
)  # fmt: skip
def test_the_last_checkpoint_is_durable_however_the_script_ends(tmp_path, tail, code):
    ended = run(tmp_path, tail)
    assert ended.returncode == code, ended.stderr
    assert committed(tmp_path) == ["step-000001"]
    assert '"event":"checkpoint_committed"' in ended.stdout


@pytest.mark.integration
def test_a_child_of_multiprocessing_ends_no_sooner_than_its_last_save(tmp_path):
    body = textwrap.indent(textwrap.dedent(SCRIPT), "    ")
    script = f"import multiprocessing\ndef work():\n{body}\n"
    tail = "p = multiprocessing.get_context('fork').Process(target=work); p.start(); p.join()"
    assert run(tmp_path, tail, script).returncode == 0
    assert committed(tmp_path) == ["step-000001"]


@pytest.mark.integration
def test_a_save_that_fails_at_the_end_makes_the_exit_code_nonzero_and_other_handlers_run(tmp_path):
    tail = """
    import atexit
    attempt.flush()
    def fail(*_):
        raise OSError(28, "No space left on device")
    commit.files.write_all = fail
    atexit.register(print, "handler that came later")
    attempt.save_async(2, {"w": b"2"})
    """
    script = "import atexit; atexit.register(print, 'handler that came first', flush=True)\n"
    script += SCRIPT
    ended = run(tmp_path, tail, script)
    assert ended.returncode == 120, "the code of Python for an error while it ends"
    assert "CheckpointError: the checkpoint of step 2 could not be written" in ended.stderr
    assert ended.stdout.count("handler that came first") == 1
    assert ended.stdout.count("handler that came later") == 1
    assert committed(tmp_path) == ["step-000001"]


@pytest.mark.integration
def test_a_save_that_fails_at_the_end_of_a_child_makes_its_exit_code_nonzero(tmp_path):
    body = textwrap.indent(textwrap.dedent(SCRIPT), "    ")
    body = body.replace("attempt.resume()", "attempt.chain; commit.files = None")
    script = f"import multiprocessing\ndef work():\n{body}\n"
    tail = """
    p = multiprocessing.get_context('fork').Process(target=work)
    p.start(); p.join(); print("child", p.exitcode)
    """
    ended = run(tmp_path, tail, script)
    assert "child 1" in ended.stdout, ended.stderr


@pytest.mark.integration
def test_a_forked_child_neither_waits_for_the_save_nor_reports_it(tmp_path):
    tail = """
    child = os.fork()
    if child == 0:
        assert attempt.flush() == 0.0
        sys.exit(7)
    print("child", os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
    """
    ended = run(tmp_path, tail)
    assert "child 7" in ended.stdout, ended.stderr
    assert ended.stdout.count("checkpoint_committed") == 1
    assert committed(tmp_path) == ["step-000001"]


@pytest.mark.integration
def test_a_forked_child_can_save_too(tmp_path):
    tail = """
    child = os.fork()
    if child == 0:
        attempt.save_async(2, {"w": b"2" * 20_000_000})
        attempt.flush()
        os._exit(7)
    print("child", os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
    attempt.save_async(3, {"w": b"3"})
    """
    ended = run(tmp_path, tail)
    assert "child 7" in ended.stdout, ended.stderr
    assert committed(tmp_path) == ["step-000001", "step-000002", "step-000003"]


@pytest.mark.integration
def test_a_first_save_at_the_end_of_the_process_is_durable(tmp_path):
    script = SCRIPT.replace(
        "attempt.save_async(", "import atexit; atexit.register(attempt.save_async, "
    )
    ended = run(tmp_path, "", script)
    assert (ended.returncode, committed(tmp_path)) == (0, ["step-000001"]), ended.stderr


def test_whatever_a_signal_interrupts_the_end_of_a_save_can_be_waited_for():
    """A handler of SIGINT or SIGTERM may raise at any line; the process must still end."""
    interrupted = 0
    for line in range(40):
        saver, left = Saver(), line

        def interrupt(frame, event, _):
            nonlocal left, interrupted
            if frame.f_code.co_filename != snapshot.__file__:
                return None
            left -= event == "line"
            if left == 0:
                interrupted += 1
                raise KeyboardInterrupt
            return interrupt

        sys.settrace(interrupt)
        try:
            saver.start(lambda: None)
        except KeyboardInterrupt:
            pass
        finally:
            sys.settrace(None)
        waiting = threading.Thread(target=saver.wait, daemon=True)
        waiting.start()
        waiting.join(10)
        assert not waiting.is_alive(), f"interrupted at line {line}"
    assert interrupted > 10


@pytest.mark.integration
def test_os_exit_and_a_kill_lose_the_save_in_flight_at_most(tmp_path):
    tail = """
    attempt.flush()
    attempt.save_async(2, {"w": bytes(50_000_000)})
    os._exit(0) if sys.argv[1:] else os.kill(os.getpid(), %d)
    """
    assert run(tmp_path, tail % signal.SIGKILL).returncode == -signal.SIGKILL
    assert committed(tmp_path)[0] == "step-000001"
    again = run(tmp_path, "print('from', attempt.resumed_from)")
    assert again.returncode == 0, again.stderr


def test_the_caller_goes_on_before_its_save_takes_the_interpreter():
    gone_on, seen = threading.Event(), threading.Event()

    def save():
        give_up_at = time.monotonic() + 2
        while time.monotonic() < give_up_at:  # pure Python, which keeps the lock
            if gone_on.is_set():
                seen.set()
                return

    saver, interval_s = Saver(), sys.getswitchinterval()
    sys.setswitchinterval(60)
    try:
        saver.start(save)
        gone_on.set()
        saver.wait()
    finally:
        sys.setswitchinterval(interval_s)
    assert seen.is_set()
