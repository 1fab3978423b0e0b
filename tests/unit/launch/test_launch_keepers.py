"""The server of keepers: one for each process, and what its loss costs."""

import os
import select
import signal
import socket
import subprocess
import sys
import textwrap
import threading
from pathlib import Path

import pytest

from flashruntime.launch import keepers
from flashruntime.launch.local import LocalLauncher, LocalProcess
from flashruntime.launch.spec import LaunchSpec
from flashruntime.protocol.failures import EndedBy, Evidence

pytestmark = pytest.mark.integration

PATIENCE_S = 30.0


def launch(tmp_path: Path, *argv: str) -> LocalProcess:
    return LocalLauncher().launch(LaunchSpec(argv, tmp_path, dict(os.environ), tmp_path / "log"))


def ended(process: LocalProcess) -> Evidence:
    evidence = process.wait(PATIENCE_S)
    assert evidence is not None
    return evidence


def keeper_of(process: LocalProcess) -> int:
    """Wait for the report of the process, and return its keeper."""
    while process.keeper_pid is None and process.wait(0.005) is None:
        pass
    assert process.keeper_pid is not None
    return process.keeper_pid


def output(tmp_path: Path, *argv: str) -> str:
    assert ended(launch(tmp_path, *argv)).exit_code == 0
    return (tmp_path / "log").read_text().strip()


def fifo_at(tmp_path: Path) -> Path:
    os.mkfifo(tmp_path / "ready")
    return tmp_path / "ready"


def await_gone(*pids: int) -> None:
    for pid in pids:
        try:
            handle = os.pidfd_open(pid)
        except ProcessLookupError:
            continue
        assert select.select([handle], [], [], PATIENCE_S)[0], f"process {pid} lives on"
        os.close(handle)


def test_launches_share_a_server(tmp_path: Path) -> None:
    servers = []
    for _ in range(2):
        ended(launch(tmp_path, "true"))
        servers.append(keepers.server_pids())
    assert servers[0] == servers[1]
    assert len(servers[0]) == 1


def test_a_process_outlives_the_server_and_another_is_started(tmp_path: Path) -> None:
    fifo = fifo_at(tmp_path)
    first = launch(tmp_path, "sh", "-c", f"read line <{fifo}; exit 3")
    (server,) = keepers.server_pids()
    with fifo.open("w") as gate:
        os.kill(server, signal.SIGKILL)
        await_gone(server)
        assert ended(launch(tmp_path, "true")).exit_code == 0
        gate.write("\n")
    assert ended(first).exit_code == 3


def test_a_keeper_that_ended_while_it_waited_is_not_taken() -> None:
    """Its server has said so on the connection before it was closed."""
    control, server = socket.socketpair()
    asked = keepers.Keepers(control)
    asked.restock()
    with socket.socket(fileno=socket.recv_fds(server, 1, 1)[1][0]) as spare:
        spare.sendall(b'{"keeper_status": 0}\n')
    with asked.open({}), socket.socket(fileno=socket.recv_fds(server, 1, 1)[1][0]) as fresh:
        assert fresh.recv(100)
    asked.close()
    server.close()


def test_a_killed_keeper_leaves_no_daemon_behind(tmp_path: Path) -> None:
    """The death of the process itself is the kernel's doing, that of its daemon the server's."""
    fifo = fifo_at(tmp_path)
    daemon = f"(setsid sh -c 'echo $$ >{fifo}; exec sleep 3600' &); exec sleep 3600"
    process = launch(tmp_path, "sh", "-c", daemon)
    pid = int(fifo.read_text())
    os.kill(keeper_of(process), signal.SIGKILL)
    assert ended(process).ended_by is EndedBy.WORKER_ERROR
    await_gone(pid)


def test_a_process_inherits_no_file_descriptor(tmp_path: Path) -> None:
    handle = os.open("/dev/null", os.O_RDONLY)
    os.set_inheritable(handle, True)
    listed = output(tmp_path, sys.executable, "-c", "import os; print(os.listdir('/proc/self/fd'))")
    os.close(handle)
    assert listed == "['0', '1', '2', '3']", "the last is that of the listing itself"


def test_a_process_inherits_the_mask_and_limits_of_the_moment(tmp_path: Path) -> None:
    """They may have changed since the server was started."""
    ended(launch(tmp_path, "true"))
    earlier = os.umask(0o027)
    try:
        assert output(tmp_path, "sh", "-c", "umask") == "0027"
    finally:
        os.umask(earlier)


def test_launches_from_many_threads_do_not_mix(tmp_path: Path) -> None:
    codes: dict[int, int | None] = {}

    def run(code: int) -> None:
        place = tmp_path / str(code)
        place.mkdir()
        codes[code] = ended(launch(place, "sh", "-c", f"exit {code}")).exit_code

    threads = [threading.Thread(target=run, args=(code,)) for code in range(12)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE_S)
    assert codes == {code: code for code in range(12)}


FORKING = """
import os, sys, time
from pathlib import Path
from flashruntime.launch.local import LocalLauncher
from flashruntime.launch import keepers
from flashruntime.launch.spec import LaunchSpec
root = Path(sys.argv[1])
def launch(*argv):
    return LocalLauncher().launch(LaunchSpec(argv, root, dict(os.environ), root / "log"))
kept = launch("sh", "-c", f"echo $$ >{sys.argv[2]}; exec sleep 3600")
"""


def test_a_fork_of_the_launching_process_has_a_server_of_its_own(tmp_path: Path) -> None:
    fifo = fifo_at(tmp_path)
    code = FORKING + textwrap.dedent(
        """
        before = keepers.server_pids()
        if os.fork() == 0:
            code = launch("sh", "-c", "exit 5").wait(30).exit_code
            os._exit(code if keepers.server_pids().isdisjoint(before) else 1)
        print(os.waitstatus_to_exitcode(os.wait()[1]))
        """
    )
    argv = [sys.executable, "-c", code, str(tmp_path), str(fifo)]
    agent = subprocess.Popen(argv, env={**os.environ, "PYTHONPATH": str(Path.cwd())}, stdout=-1)
    pid = int(fifo.read_text())
    out, _ = agent.communicate(timeout=PATIENCE_S)
    assert out.strip() == b"5"
    await_gone(pid)


def test_a_fork_that_lives_on_does_not_keep_the_tree_of_a_killed_launcher(tmp_path: Path) -> None:
    fifo = fifo_at(tmp_path)
    told = f"open({str(tmp_path / 'forked')!r}, 'w').write(str(os.getpid()))"
    os.mkfifo(tmp_path / "forked")
    code = FORKING + f"if os.fork() == 0: {told}; time.sleep(3600)\nos.wait()"
    argv = [sys.executable, "-c", code, str(tmp_path), str(fifo)]
    agent = subprocess.Popen(argv, env={**os.environ, "PYTHONPATH": str(Path.cwd())})
    kept, forked = int(fifo.read_text()), int((tmp_path / "forked").read_text())
    agent.kill()
    agent.wait()
    await_gone(kept)
    os.kill(forked, signal.SIGKILL)
    await_gone(forked)
