"""What may be submitted, and what is refused before anything starts."""

import math
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import flashruntime as flash
from flashruntime.errors import InvalidInput
from flashruntime.protocol.argv import split
from flashruntime.protocol.jobs import Outputs

COMMAND = ["python3", "train.py"]


def test_a_command_is_split_as_a_shell_would_or_taken_as_it_is() -> None:
    assert flash.CommandWorkload("python t.py --name 'my run'").command[-1] == "my run"
    assert flash.CommandWorkload(["a b", "{"]).command == ["a b", "{"]


def test_089_a_backslash_never_disappears() -> None:
    with pytest.raises(InvalidInput, match="backslash"):
        flash.CommandWorkload(r"python C:\data\train.py")
    assert flash.CommandWorkload(["python", r"C:\data\t.py"]).command[1] == r"C:\data\t.py"


@given(st.text())
def test_splitting_never_loses_a_backslash(text: str) -> None:
    try:
        argv = split(text)
    except InvalidInput:
        return
    assert sum(word.count("\\") for word in argv) == text.count("\\")


@pytest.mark.parametrize("command", [[], [""], "", "  ", ["python3", "a\0b"], "echo 'open", 5])
def test_095_a_command_that_cannot_run_is_a_value_error(command: Any) -> None:
    with pytest.raises(ValueError, match=r"command|backslash"):
        flash.CommandWorkload(command)


@pytest.mark.parametrize(
    "name", ["../x", "/etc/passwd", "", "dir/", "*.pt", "a\\b", "../../etc/passwd", "a//b", "a\0"]
)
def test_099_an_output_is_a_plain_relative_name(name: str) -> None:
    with pytest.raises(InvalidInput, match=r"OutputSpec\.collect"):
        flash.CommandWorkload(COMMAND, outputs=[name])


def test_only_outputs_that_are_named_are_required() -> None:
    assert flash.OutputSpec().files == Outputs(required=[], optional=["metrics.json"])
    named = flash.OutputSpec(["model.bin", "model.bin"]).files
    assert named == Outputs(required=["model.bin"], optional=["metrics.json"])
    assert flash.OutputSpec(["metrics.json"]).files.required == ["metrics.json"]
    assert flash.CommandWorkload(COMMAND, outputs=[]).outputs.files.required == []


@pytest.mark.parametrize(
    "field",
    [
        {"task_params": []},
        {"task_params": [{"lr": 1}]},
        {"task_params": [{"lr": object()}]},
        {"task_params": [{"lr": math.inf}]},
        {"task_params": {"lr": 1}},
        {"task_params": "lr"},
        {"outputs": {"x": 1}},
        {"source": "a\0b"},
        {"env": {"A": 1}},
        {"env": {"A=B": "1"}},
        {"env": ["A"]},
        {"mode": "slurm"},
        {"no_progress_s": 0},
        {"no_progress_s": math.nan},
    ],
)
def test_a_field_that_breaks_a_rule_is_named(field: dict[str, Any]) -> None:
    command = [*COMMAND, "{lr}"] if field.get("task_params") else COMMAND
    if field.get("task_params") == [{"lr": 1}]:
        command = COMMAND
    with pytest.raises(InvalidInput, match=r"lr|env|mode|no_progress_s|task_params|out|source"):
        flash.CommandWorkload(command, **field)


def test_parameters_that_could_be_read_only_once_are_refused() -> None:
    with pytest.raises(InvalidInput, match="must be a list of dicts"):
        flash.CommandWorkload([*COMMAND, "{lr}"], task_params=({"lr": x} for x in (1, 2)))  # type: ignore[arg-type]


@pytest.mark.parametrize("value", [-1, "3", None, True, 10**12, 1.0])
def test_133_max_restarts_out_of_range_is_named(tmp_path: Path, value: Any) -> None:
    with pytest.raises(InvalidInput, match="max_restarts="):
        flash.submit(flash.CommandWorkload(["true"]), tmp_path, max_restarts=value)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("parallel", 0),
        ("parallel", True),
        ("timeout_s", 0),
        ("timeout_s", math.inf),
        ("timeout_s", "5"),
        ("timeout_s", math.nan),
        ("output_dir", ""),
        ("output_dir", "a\0b"),
        ("output_dir", 5),
        ("output_dir", b"out"),
    ],
)
def test_other_arguments_out_of_range_are_named(tmp_path: Path, name: str, value: Any) -> None:
    with pytest.raises(InvalidInput, match=f"{name}="):
        flash.submit(flash.CommandWorkload(["true"]), **{"output_dir": tmp_path, name: value})


@pytest.mark.parametrize("limit_s", [1e10, 1e300, 10**400])
def test_a_limit_beyond_all_time_is_none(tmp_path: Path, limit_s: float) -> None:
    hung_s = min(limit_s, 1e300)
    workload = flash.CommandWorkload(["true"], source=tmp_path, no_progress_s=hung_s)
    run = flash.submit(workload, tmp_path / "out", wait=False, timeout_s=limit_s)
    assert run.wait(limit_s) is flash.RunState.SUCCEEDED, run.reason


def test_a_workload_is_not_a_command(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="CommandWorkload"):
        flash.submit("true", tmp_path)  # type: ignore[arg-type]


def test_an_output_directory_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(InvalidInput, match="output_dir"):
        flash.submit(flash.CommandWorkload(["true"]), tmp_path / "file" / "out")
