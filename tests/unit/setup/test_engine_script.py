"""What docker/engine.sh does to the machine, with stand-ins for the commands on PATH."""

import os
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]

SILENT_DOCKER = """
case "$1 $2" in
    "context show") echo default ;;
    *) echo "Cannot connect to the Docker daemon. Is the docker daemon running?" >&2; exit 1 ;;
esac
"""
ANSWERING_DOCKER = """
case "$1 $2" in
    "version --format") echo 24.0.7 ;;
    "info --format") echo "$ENGINE_ROOT" ;;
esac
"""


class Machine:
    """A PATH whose first entry holds the stand-ins, and the calls that they got."""

    def __init__(self, folder: Path) -> None:
        self.bin = folder / "bin"
        self.bin.mkdir()
        self.calls = folder / "calls"
        self.state = folder / "state"
        self.root = folder

    def command(self, name: str, body: str) -> None:
        path = self.bin / name
        path.write_text(f'#!/bin/bash\necho "{name} $*" >>"{self.calls}"\n{body}\n')
        path.chmod(0o755)

    def called(self) -> str:
        return self.calls.read_text() if self.calls.exists() else ""

    def engine(self, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
        kept = {k: v for k, v in os.environ.items() if not k.startswith(("FLASHML_", "DOCKER_"))}
        return subprocess.run(
            [ROOT / "docker" / "engine.sh", *arguments],
            env=kept
            | {
                "PATH": f"{self.bin}:/usr/sbin:/usr/bin:/sbin:/bin",
                "FLASHML_ENGINE_STATE": str(self.state),
                "ENGINE_ROOT": str(self.root),
            }
            | environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    made = Machine(tmp_path)
    for forbidden in ("apt-get", "dockerd", "systemctl"):
        made.command(forbidden, "exit 97")
    made.command("docker", SILENT_DOCKER)
    made.command("id", "echo 0")
    return made


def touched(machine: Machine) -> list[str]:
    """Calls that would have changed the machine."""
    return [
        line
        for line in machine.called().splitlines()
        if line.startswith(("apt-get", "dockerd", "systemctl"))
    ]


def test_never_forbids_starting_an_engine_and_names_the_choices(machine: Machine) -> None:
    done = machine.engine(FLASHML_ENGINE="never")
    assert done.returncode == 1
    assert "FLASHML_ENGINE=never" in done.stderr
    assert "DOCKER_HOST" in done.stderr
    assert touched(machine) == []


def test_an_ordinary_user_is_told_that_only_root_may_start_one(machine: Machine) -> None:
    machine.command("id", "echo 1000")
    done = machine.engine()
    assert done.returncode == 1
    assert "only root" in done.stderr
    assert touched(machine) == []


def test_a_socket_without_permission_is_told_apart_from_no_engine(machine: Machine) -> None:
    machine.command("docker", "echo 'permission denied while trying to connect' >&2; exit 1")
    done = machine.engine()
    assert done.returncode == 1
    assert "group docker" in done.stderr
    assert touched(machine) == []


def test_an_unreachable_engine_of_somebody_else_is_never_replaced(machine: Machine) -> None:
    done = machine.engine(DOCKER_HOST="tcp://192.0.2.1:2375")
    assert done.returncode == 1
    assert "DOCKER_HOST=tcp://192.0.2.1:2375" in done.stderr
    assert touched(machine) == []


def test_an_engine_that_answers_is_used_as_it_is(machine: Machine) -> None:
    machine.command("docker", ANSWERING_DOCKER)
    done = machine.engine(FLASHML_MIN_FREE_MIB="1")
    assert done.returncode == 0, done.stderr
    assert "engine 24.0.7" in done.stderr
    assert touched(machine) == []
    assert not machine.state.exists()


def test_a_disk_that_is_nearly_full_is_refused_with_the_room_needed(machine: Machine) -> None:
    machine.command("docker", ANSWERING_DOCKER)
    done = machine.engine(FLASHML_MIN_FREE_MIB="999999999999")
    assert done.returncode == 1
    assert "999999999999 MiB" in done.stderr
    assert str(machine.root) in done.stderr


def test_a_docker_command_without_plugins_is_refused_with_their_names(machine: Machine) -> None:
    machine.command("docker", f'[ "$2" = version ] && exit 1\n{ANSWERING_DOCKER}')
    done = machine.engine(FLASHML_ENGINE="never")
    assert done.returncode == 1
    assert "docker-compose docker-buildx" in done.stderr


def test_stop_ends_nothing_that_this_project_did_not_start(machine: Machine) -> None:
    machine.command("docker", ANSWERING_DOCKER)
    done = machine.engine("stop")
    assert done.returncode == 0
    assert "nothing to do" in done.stderr
    assert touched(machine) == []


def test_stop_spares_a_process_that_got_the_pid_of_our_dead_engine(machine: Machine) -> None:
    machine.state.mkdir()
    bystander = subprocess.Popen(["/bin/cat"], stdin=subprocess.PIPE)
    try:
        (machine.state / "started").write_text(f"{bystander.pid}\n")
        done = machine.engine("stop")
        assert done.returncode == 0
        assert "no longer runs" in done.stderr
        assert bystander.poll() is None
        assert not (machine.state / "started").exists()
    finally:
        bystander.communicate()


def test_an_unknown_verb_is_a_usage_error(machine: Machine) -> None:
    assert machine.engine("restart").returncode == 2
