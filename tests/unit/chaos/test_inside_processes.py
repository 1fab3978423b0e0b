"""What looks at processes from the host's side, tried on the processes of this test."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from chaos.targets.inside import clock, evidence, processes


def test_processes_are_those_of_the_same_namespace_and_alive() -> None:
    child = subprocess.Popen([sys.executable, "-c", "import signal; signal.pause()", "it is me"])
    try:
        found = processes.answer({"verb": "list", "root": os.getpid()})["processes"]
        (mine,) = [each for each in found if each["pid"] == child.pid]
        assert (mine["parent"], mine["command"].endswith("it is me")) == (os.getpid(), True)
        sent = {"verb": "signal", "root": os.getpid(), "pid": child.pid, "signal": "SIGKILL"}
        assert processes.answer(sent) == {"sent": True}
        os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
        assert child.pid not in [each["pid"] for each in processes.listing(os.getpid())]
    finally:
        assert child.wait() == -signal.SIGKILL
    assert processes.answer(sent) == {"sent": False}


def test_a_process_elsewhere_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """Numbers are used again: the namespace is compared once the process is held fast."""
    monkeypatch.setattr(processes, "namespace", lambda pid: f"pid:[{int(pid == 1)}]")
    with pytest.raises(PermissionError, match="refused"):
        processes.send(1, os.getpid(), "SIGCONT")


def test_a_container_that_is_gone_has_no_processes() -> None:
    assert processes.listing(2**22 + 1) == []


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        ({"memory/memory.oom_control": "oom_kill_disable 0\nunder_oom 0\noom_kill 3\n"}, 3),
        ({"memory.events": "low 0\noom 1\noom_kill 2\noom_group_kill 0\n"}, 2),
        ({"memory.events": "low 0\n"}, None),
        ({}, None),
    ],
)
def test_counters_are_read_in_both_versions(
    tmp_path: Path, files: dict[str, str], expected: int | None
) -> None:
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    assert processes.counter(tmp_path, *processes.USAGE["oom_kills"]) == expected


def test_a_clock_file_is_replaced_as_a_whole(tmp_path: Path) -> None:
    path = tmp_path / "worker-1"
    path.write_text("+0\n")
    path.chmod(0o600)
    assert clock.answer({"path": str(path), "offset_s": -3600}) == {"written": "-3600.000"}
    assert (path.read_text(), path.stat().st_mode & 0o777) == ("-3600.000\n", 0o644)
    assert list(tmp_path.iterdir()) == [path]


def test_evidence_that_is_not_whole_is_none(tmp_path: Path) -> None:
    path = tmp_path / "lease-1.json"
    assert evidence.answer({"path": str(path)}) == {"evidence": None}
    path.write_text('{"mode": ')
    assert evidence.answer({"path": str(path)}) == {"evidence": None}
    path.write_text('{"mode": "flood"}')
    assert evidence.answer({"path": str(path)}) == {"evidence": {"mode": "flood"}}
