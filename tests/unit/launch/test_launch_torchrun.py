"""torchrun as a command."""

import json
import sys
from pathlib import Path

import pytest

from flashruntime.errors import InvalidInput
from flashruntime.launch import torchrun
from flashruntime.launch.torchrun import ranks_of, read_torchrun_error, torchrun_argv

MAIN = str(Path(torchrun.__file__).with_name("torchrun_main.py"))
FLAGS = (MAIN, "--standalone", "--nnodes=1", "--local-addr=127.0.0.1", "--nproc-per-node=2")
FLAGS += ("--max-restarts=0",)


@pytest.mark.parametrize(
    ("command", "argv"),
    [
        (["train.py", "--a"], (sys.executable, *FLAGS, "train.py", "--a")),
        (["python3", "train.py"], ("python3", *FLAGS, "train.py")),
        (["/v/bin/python", "-m", "pkg", "x"], ("/v/bin/python", *FLAGS, "-m", "pkg", "x")),
    ],
)
def test_a_script_or_module_runs_under_the_same_python(
    command: list[str], argv: tuple[str, ...]
) -> None:
    assert torchrun_argv(command, 2) == argv


@pytest.mark.parametrize(
    "command", [["python"], ["python", "-c", "pass"], ["python3", "-u", "x.py"]]
)
def test_what_torchrun_cannot_run_is_refused(command: list[str]) -> None:
    with pytest.raises(InvalidInput, match="torchrun"):
        torchrun_argv(command, 2)


@pytest.mark.parametrize(
    ("argv", "ranks"),
    [
        (("torchrun", "--nproc-per-node=4", "train.py"), 4),
        (("/v/bin/torchrun", "--nproc_per_node", "8", "train.py"), 8),
        (("python", "-m", "torch.distributed.run", "--nproc-per-node=2", "train.py"), 2),
        (torchrun_argv(["train.py"], 3), 3),
        (("python", "-m", "flashruntime.launch.torchrun_main", "--nproc-per-node=2", "x.py"), 2),
        (("torchrun", "--nproc-per-node=gpu", "train.py"), 1),
        (("python", "train.py", "--nproc-per-node=4"), 1),
        ((), 1),
    ],
)
def test_a_torchrun_command_says_how_many_ranks_restart_together(
    argv: tuple[str, ...], ranks: int
) -> None:
    assert ranks_of(argv) == ranks


def test_a_local_run_has_one_node() -> None:
    with pytest.raises(InvalidInput, match="nnodes=2"):
        torchrun_argv(["train.py"], 2, nodes=2)


@pytest.mark.parametrize(
    ("content", "error"),
    [
        ({"message": {"message": "ValueError: a: b", "extraInfo": {}}}, ("ValueError", "a: b")),
        ({"message": "torch.OutOfMemoryError: CUDA"}, ("torch.OutOfMemoryError", "CUDA")),
        ({"message": {"message": "signal 9 received"}}, (None, "signal 9 received")),
        ({"message": {}}, (None, None)),
        ([], (None, None)),
        ({"message": 3}, (None, None)),
    ],
)
def test_its_error_file_is_read_whatever_it_holds(
    tmp_path: Path, content: object, error: tuple[str | None, str | None]
) -> None:
    path = tmp_path / "error.json"
    path.write_text(json.dumps(content))
    assert read_torchrun_error(path) == error
    assert read_torchrun_error(tmp_path / "none") == (None, None)
