"""Processes by the thousand: descriptors beyond 1,024, servers that may open no more, orphans."""

import fcntl
import os
import resource
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path

import pytest

from flashruntime.launch import keepers, processes
from flashruntime.launch.local import LocalLauncher, LocalProcess
from flashruntime.launch.spec import LaunchSpec
from flashruntime.protocol.failures import EndedBy

ROOT = Path(__file__).parents[3]
HIGH = 1_500


@pytest.fixture
def _many_files() -> Iterator[None]:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard <= HIGH:
        pytest.skip(f"this host allows no more than {hard} descriptors")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, HIGH + 10), hard))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@pytest.mark.usefixtures("_many_files")
def test_descriptors_beyond_those_of_select_are_waited_for() -> None:
    """A server of more than 1,000 processes has them."""
    reader, writer = os.pipe()
    high = fcntl.fcntl(reader, fcntl.F_DUPFD, HIGH)
    assert processes.readable((reader, high), 0.0) == []
    os.write(writer, b"x")
    assert processes.await_change(reader, (high,), None) == [reader, high]
    os.close(writer)
    assert processes.readable((high,), None) == [high], "an end counts too"
    os.close(reader)
    os.close(high)


def launch(root: Path, *argv: str) -> LocalProcess:
    return LocalLauncher().launch(LaunchSpec(argv, root, dict(os.environ), root / "log"))


def test_a_server_that_may_open_no_more_refuses_and_goes_on(tmp_path: Path) -> None:
    fifo = tmp_path / "gate"
    os.mkfifo(fifo)
    first = launch(tmp_path, "sh", "-c", f"read line <{fifo}; exit 3")
    (server,) = keepers.server_pids()
    before = resource.prlimit(server, resource.RLIMIT_NOFILE)
    with fifo.open("w") as gate:
        opened = [int(path.name) for path in Path(f"/proc/{server}/fd").iterdir()]
        least = next(number for number in range(len(opened) + 1) if number not in opened)
        resource.prlimit(server, resource.RLIMIT_NOFILE, (least, before[1]))
        refused = [launch(tmp_path, "true").wait(30) for _ in range(3)][-1]
        resource.prlimit(server, resource.RLIMIT_NOFILE, before)
        assert refused is not None
        assert refused.ended_by in {EndedBy.WORKER_ERROR, EndedBy.SPAWN_ERROR}
        gate.write("\n")
    ended = first.wait(30)
    assert ended is not None
    assert ended.exit_code == 3
    # The first may have a keeper that was forked under the limit.
    again = [launch(tmp_path, "true").wait(30) for _ in range(2)][-1]
    assert again is not None
    assert again.exit_code == 0
    assert keepers.server_pids() == {server}


ORPHANS = """
import os, signal, sys
from pathlib import Path
from flashruntime.launch import keepers
from flashruntime.launch.local import LocalLauncher
from flashruntime.launch.spec import LaunchSpec
root = Path(sys.argv[1])
launcher = LocalLauncher(adopt_orphans=True)
def launch(code):
    process = launcher.launch(LaunchSpec(("sh", "-c", code), root, dict(os.environ), root / "log"))
    while process.keeper_pid is None: process.wait(0.005)
    return process
os.mkfifo(root / "gate")
first, second = launch("sleep 3600"), launch(f"read line <{root}/gate; exit 5")
(server,) = keepers.server_pids()
os.kill(server, signal.SIGKILL)
while keepers.server_pids(): second.wait(0.005)
os.kill(first.keeper_pid, signal.SIGKILL)
print(first.wait(30).ended_by)
(root / "gate").write_text("go")
print(second.wait(30).exit_code)
"""


def test_what_one_killed_keeper_leaves_is_ended_and_no_other_process(tmp_path: Path) -> None:
    """Also where the server that would have done it was killed before."""
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(ORPHANS), str(tmp_path)],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.stdout.split() == ["worker_error", "5"], done.stderr
    assert done.returncode == 0
