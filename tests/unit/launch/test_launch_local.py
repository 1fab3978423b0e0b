"""One process with its whole tree: started, stopped, and gone."""

import json
import os
import select
import signal
import subprocess
import sys
import textwrap
import threading
from pathlib import Path

import pytest

from flashruntime.launch.environment import HOOK_DIR, child_environment
from flashruntime.launch.local import LocalLauncher, LocalProcess
from flashruntime.launch.processes import descendants
from flashruntime.launch.spec import LaunchSpec
from flashruntime.protocol.failures import EndedBy, History
from flashruntime.recovery import decide

pytestmark = pytest.mark.integration

PATIENCE_S = 20.0


def launch(tmp_path: Path, *argv: str, **env: str) -> tuple[LocalProcess, Path]:
    error_file = tmp_path / "error.json"
    spec = LaunchSpec(
        argv=argv,
        cwd=tmp_path,
        env=child_environment(os.environ, env, {"FLASHML_ERROR_FILE": str(error_file)}),
        log_path=tmp_path / "launcher.log",
        error_file=error_file,
    )
    return LocalLauncher().launch(spec), spec.log_path


def keeper_of(process: LocalProcess) -> int:
    """Wait for the report of the process, and return its keeper."""
    while process.keeper_pid is None and process.wait(0.005) is None:
        pass
    assert process.keeper_pid is not None
    return process.keeper_pid


def python(tmp_path: Path, code: str, **env: str) -> tuple[LocalProcess, Path]:
    return launch(tmp_path, sys.executable, "-c", textwrap.dedent(code), **env)


def ready(fifo: Path) -> str:
    """Wait for the script to write to the fifo."""
    with fifo.open() as file:
        return file.read()


def fifo_at(tmp_path: Path) -> Path:
    path = tmp_path / "ready"
    os.mkfifo(path)
    return path


def is_gone(pid: int) -> bool:
    """Whether a process has ended (a zombie that its parent has not collected counts as ended)."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_bytes()
    except OSError:
        return True
    return stat.rpartition(b")")[2].split()[0] in {b"Z", b"X"}


def await_gone(*pids: int) -> None:
    """Wait for processes that are not our children to end."""
    for pid in pids:
        if is_gone(pid):
            continue
        handle = os.pidfd_open(pid)
        assert select.select([handle], [], [], PATIENCE_S)[0], f"process {pid} lives on"
        os.close(handle)


@pytest.mark.parametrize("code", [0, 3, 127])
def test_an_exit_code_is_kept(tmp_path: Path, code: int) -> None:
    process, _ = launch(tmp_path, "sh", "-c", f"exit {code}")
    evidence = process.wait(PATIENCE_S)
    assert evidence is not None
    assert (evidence.ended_by, evidence.exit_code) == (EndedBy.EXIT, code)


def test_a_signal_is_kept(tmp_path: Path) -> None:
    process, log = python(tmp_path, "import os; print('shard 7'); os.kill(os.getpid(), 9)")
    evidence = process.wait(PATIENCE_S)
    assert evidence is not None
    assert (evidence.ended_by, evidence.signal) == (EndedBy.SIGNAL, 9)
    assert log.read_text() == "shard 7\n", "case 035: the last words are not lost in a buffer"


def test_output_of_any_kind_goes_to_the_log_and_stdin_is_empty(tmp_path: Path) -> None:
    process, log = python(
        tmp_path,
        """
        import sys
        sys.stdout.buffer.write(b'caf\\xe9 \\x00\\n' + b'x' * 70_000 + b'\\n')
        print(repr(sys.stdin.read()), file=sys.stderr)
        for i in range(200_000): print('line', i)
        print('END'); sys.exit(3)
        """,
    )
    evidence = process.wait(PATIENCE_S)
    assert evidence is not None
    assert evidence.exit_code == 3
    content = log.read_bytes()
    assert content.startswith(b"caf\xe9 \x00\n")
    assert content.endswith(b"line 199999\nEND\n")
    assert b"\n''\n" in content


@pytest.mark.parametrize(
    ("argv", "words"),
    [
        (("pyhton3", "train.py"), ["executable not found: pyhton3", "PATH="]),
        (("/nonexistent/x",), ["executable not found: /nonexistent/x"]),
        (("./plain",), ["not executable: ./plain"]),
        (("./nothing",), ["./nothing", "#!"]),
        (("./crlf.sh",), ["Windows line endings"]),
        (("echo", "x" * 200_000), ["too long"]),
        (("echo", "a\0b"), ["cannot start echo", "null byte"]),
    ],
)
def test_a_command_that_cannot_start_says_why(
    tmp_path: Path, argv: tuple[str, ...], words: list[str]
) -> None:
    (tmp_path / "plain").write_text("#!/bin/sh\n")
    for name, content in {"nothing": "", "crlf.sh": "#!/bin/sh\r\n"}.items():
        (tmp_path / name).write_text(content)
        (tmp_path / name).chmod(0o755)
    process, _ = launch(tmp_path, *argv)
    evidence = process.wait(PATIENCE_S)
    assert evidence is not None
    assert evidence.ended_by is EndedBy.SPAWN_ERROR
    assert all(word in (evidence.message or "") for word in words), evidence.message


def test_a_path_that_is_not_unicode_is_still_told(tmp_path: Path) -> None:
    process, _ = launch(tmp_path, "pyhton3", PATH="/opt/caf\udce9")
    evidence = process.wait(PATIENCE_S)
    assert evidence is not None
    assert "PATH=/opt/caf?" in (evidence.message or "")


def test_an_end_that_cannot_be_explained_is_an_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("flashruntime.launch.local.explain_exit", lambda *_: {}["no such key"])
    process, _ = launch(tmp_path, "false")
    evidence = process.wait(PATIENCE_S)
    assert evidence is not None
    assert evidence.ended_by is EndedBy.WORKER_ERROR


def test_an_env_script_with_windows_line_endings_gets_a_hint(tmp_path: Path) -> None:
    script = tmp_path / "run.sh"
    script.write_bytes(b"#!/usr/bin/env python3\r\nprint(1)\r\n")
    script.chmod(0o755)
    process, _ = launch(tmp_path, "./run.sh")
    evidence = process.wait(PATIENCE_S)
    assert evidence is not None
    assert evidence.exit_code == 127
    assert "Windows line endings" in (evidence.message or "")


def test_stop_lets_the_process_end_by_itself_and_says_that_it_was_stopped(tmp_path: Path) -> None:
    fifo = fifo_at(tmp_path)
    process, log = python(
        tmp_path,
        f"""
        import signal, sys
        def leave(*_): print('saved'); sys.exit(143)
        signal.signal(signal.SIGTERM, leave)
        open({str(fifo)!r}, 'w').close()
        signal.pause()
        """,
    )
    ready(fifo)
    process.stop(PATIENCE_S)
    evidence = process.wait(PATIENCE_S)
    assert evidence is not None
    assert (evidence.ended_by, evidence.exit_code) == (EndedBy.STOPPED, 143)
    assert log.read_text() == "saved\n"


def test_017_what_ends_well_because_we_stopped_it_was_preempted(tmp_path: Path) -> None:
    """Its exit code of 0 is no success: the stop is the stronger evidence."""
    fifo = fifo_at(tmp_path)
    process, _ = python(
        tmp_path,
        f"""
        import signal, sys
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
        open({str(fifo)!r}, 'w').close()
        signal.pause()
        """,
    )
    ready(fifo)
    process.stop(PATIENCE_S)
    evidence = process.wait(PATIENCE_S)
    assert evidence is not None
    assert (evidence.ended_by, evidence.exit_code) == (EndedBy.STOPPED, 0)
    decision = decide(evidence, History(errors=5, max_errors=1))
    assert (decision.failure_class, decision.retries) == ("preemption", True)


def test_stop_kills_what_ignores_it_once_the_nearest_deadline_has_passed(tmp_path: Path) -> None:
    fifo = fifo_at(tmp_path)
    process, _ = launch(
        tmp_path, "sh", "-c", f"trap '' TERM; : > {fifo}; while :; do sleep 9; done"
    )
    ready(fifo)
    process.stop(3600)
    process.stop(0.1)
    evidence = process.wait(PATIENCE_S)
    assert evidence is not None
    assert (evidence.ended_by, evidence.signal) == (EndedBy.STOPPED, signal.SIGKILL)


DAEMON = """
import os, sys, time
reader, writer = os.pipe()
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        with open({fifo!r}, 'w') as file: file.write(str(os.getpid()))
        os.write(writer, b'.')
        time.sleep(3600)
    os._exit(0)
os.wait()
os.read(reader, 1)
"""


def test_what_a_process_leaves_behind_ends_with_it(tmp_path: Path) -> None:
    """A daemon that forked twice into a session of its own does not escape."""
    fifo = fifo_at(tmp_path)
    process, _ = python(tmp_path, DAEMON.format(fifo=str(fifo)))
    daemon = int(ready(fifo))
    evidence = process.wait(PATIENCE_S)
    assert evidence is not None
    assert evidence.exit_code == 0
    assert is_gone(daemon)


def test_a_process_that_forks_and_exits_cannot_outrun_the_kill(tmp_path: Path) -> None:
    fifo = fifo_at(tmp_path)
    process, _ = python(
        tmp_path,
        f"""
        import os, signal
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        open({str(fifo)!r}, "w").close()
        while os.fork() == 0: pass
        """,
    )
    ready(fifo)
    assert process.wait(PATIENCE_S / 4) is not None


AGENT = """
import os, sys
from pathlib import Path
from flashruntime.launch.local import LocalLauncher
from flashruntime.launch.spec import LaunchSpec
argv = (sys.executable, "-c", sys.argv[2])
spec = LaunchSpec(argv, Path(sys.argv[1]), dict(os.environ), Path(sys.argv[1], "log"))
LocalLauncher().launch(spec).wait()
"""


def test_sigkill_of_the_launching_process_leaves_no_process(tmp_path: Path) -> None:
    fifo = fifo_at(tmp_path)
    job = DAEMON.format(fifo=str(fifo)) + "time.sleep(3600)"
    agent = subprocess.Popen(
        [sys.executable, "-c", AGENT, str(tmp_path), job],
        env={**os.environ, "PYTHONPATH": str(Path.cwd())},
    )
    ready(fifo)
    below = descendants(agent.pid)
    agent.kill()
    agent.wait()
    assert len(below) >= 3, "keeper, process and daemon"
    await_gone(*below)


def test_a_keeper_that_is_killed_takes_the_process_along(tmp_path: Path) -> None:
    fifo = fifo_at(tmp_path)
    process, _ = python(
        tmp_path, f"import time; open({str(fifo)!r}, 'w').close(); time.sleep(3600)"
    )
    ready(fifo)
    os.kill(keeper_of(process), signal.SIGKILL)
    assert process.pid is not None
    evidence = process.wait(PATIENCE_S)
    assert evidence is not None
    assert evidence.ended_by is EndedBy.WORKER_ERROR
    await_gone(process.pid)


def test_the_end_is_announced_once(tmp_path: Path) -> None:
    ends: list[int] = []
    spec = LaunchSpec(("true",), tmp_path, dict(os.environ), tmp_path / "log")
    process = LocalLauncher().launch(spec, lambda: ends.append(1))
    process.wait(PATIENCE_S)
    for thread in threading.enumerate():
        if thread.name == "launch-follow":
            thread.join(PATIENCE_S)
    assert ends == [1]


def test_an_uncaught_exception_is_reported_with_its_type(tmp_path: Path) -> None:
    process, log = python(tmp_path, "{}['val_acc']")
    evidence = process.wait(PATIENCE_S)
    assert evidence is not None
    assert (evidence.error_type, evidence.message) == ("KeyError", "'val_acc'")
    assert "KeyError: 'val_acc'" in log.read_text(), "and is still shown"


def test_a_handled_exception_and_a_system_exit_are_no_errors(tmp_path: Path) -> None:
    process, _ = python(
        tmp_path, "import sys\ntry: 1/0\nexcept ZeroDivisionError: pass\nsys.exit('bye')"
    )
    evidence = process.wait(PATIENCE_S)
    assert evidence is not None
    assert (evidence.exit_code, evidence.error_type) == (1, None)


def test_a_file_that_shadows_a_module_harms_only_its_own_script(tmp_path: Path) -> None:
    """Case 097: the script fails with its own error, and the report still arrives."""
    for name in ("json", "traceback", "logging", "flashruntime"):
        (tmp_path / f"{name}.py").write_text("x = 1")
    (tmp_path / "train.py").write_text("import json; print(json.dumps({}))")
    process, _ = launch(tmp_path, sys.executable, "train.py")
    evidence = process.wait(PATIENCE_S)
    assert evidence is not None
    assert evidence.error_type == "AttributeError"
    assert "no attribute 'dumps'" in (evidence.message or "")


def test_a_wrapper_does_not_replace_the_error_of_its_child(tmp_path: Path) -> None:
    """Case 005."""
    process, _ = python(
        tmp_path,
        """
        import subprocess, sys
        subprocess.run([sys.executable, '-c', 'raise ValueError("num_heads")'])
        class ChildFailedError(Exception): pass
        raise ChildFailedError('train.py FAILED')
        """,
    )
    evidence = process.wait(PATIENCE_S)
    assert evidence is not None
    assert (evidence.error_type, evidence.message) == ("ValueError", "num_heads")


def test_the_hook_runs_the_sitecustomize_that_it_hides(tmp_path: Path) -> None:
    site = tmp_path / "site"
    site.mkdir()
    (site / "sitecustomize.py").write_text("import builtins; builtins.seen = __file__")
    process, log = python(
        tmp_path,
        f"""
        import sys, sitecustomize
        print(seen, sitecustomize.__file__, {str(HOOK_DIR)!r} in sys.path)
        """,
        PYTHONPATH=str(site),
    )
    process.wait(PATIENCE_S)
    mine = str(site / "sitecustomize.py")
    assert log.read_text().split() == [mine, mine, "False"]


def test_a_broken_error_file_is_no_evidence(tmp_path: Path) -> None:
    (tmp_path / "error.json").write_text(json.dumps(["no", "object"]))
    process, _ = launch(tmp_path, "sh", "-c", "exit 4")
    evidence = process.wait(PATIENCE_S)
    assert evidence is not None
    assert (evidence.exit_code, evidence.error_type) == (4, None)


def test_an_order_that_came_too_late_harms_nobody(tmp_path: Path) -> None:
    process, _ = launch(tmp_path, "true")
    assert process.wait(PATIENCE_S) is not None
    process.stop(0.0)
    evidence = process.wait(PATIENCE_S)
    assert evidence is not None
    assert evidence.exit_code == 0
