"""The words of a submission, and the directory that goes with it."""

import os
from argparse import ArgumentParser
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flashruntime.cli import main, source, submit
from flashruntime.cli.command import job_spec, split
from flashruntime.client import CoordinatorClient
from flashruntime.errors import InvalidInput
from flashruntime.protocol.jobs import CommandWorkload, JobSpec


def spec_of(*words: str) -> JobSpec:
    parser = ArgumentParser()
    submit.add_arguments(parser)
    args = parser.parse_args(list(words))
    return job_spec(args, split(args.command), [])


@pytest.mark.parametrize(
    ("words", "argv"),
    [
        (["python train.py --name 'my run'"], ["python", "train.py", "--name", "my run"]),
        (["python", "C:\\data\\train.py"], ["python", "C:\\data\\train.py"]),
        (["python 'C:\\data\\train.py'"], ["python", "C:\\data\\train.py"]),
        (["echo '{\"a\": {b}}' {"], ["echo", '{"a": {b}}', "{"]),
    ],
)
def test_one_word_is_split_and_several_are_kept(words: list[str], argv: list[str]) -> None:
    assert split(words) == argv


@pytest.mark.parametrize("text", ["python C:\\data\\train.py", "a\\ b", "", "  ", "echo 'open"])
def test_a_command_that_would_be_mangled_or_is_empty_is_refused(text: str) -> None:
    """Cases 089 and 095."""
    with pytest.raises(InvalidInput):
        split([text])


@given(st.text())
def test_splitting_never_loses_a_backslash(text: str) -> None:
    try:
        argv = split([text])
    except InvalidInput:
        return
    assert sum(word.count("\\") for word in argv) == text.count("\\")


def test_options_reach_the_spec() -> None:
    spec = spec_of(
        "python train.py {lr}", "--param", "lr=1e-3", "--output", "model dir/best é.bin",
        "--env", "A=b=c", "--max-restarts", "0", "--lease-seconds", "5",
    )  # fmt: skip
    workload = spec.spec.workload
    assert isinstance(workload, CommandWorkload)
    assert workload.parameters.task_params == [{"lr": "1e-3"}]
    assert workload.parameters.outputs.required == ["model dir/best é.bin"]
    assert workload.parameters.env == {"A": "b=c"}
    assert workload.parameters.lease_seconds == 5
    assert spec.spec.retryPolicy.maxTaskAttempts == 1
    assert spec.metadata.name == "train.py"


@pytest.mark.parametrize(
    ("command", "name"),
    [
        ("python3 jobs/train.py --lr 1", "train.py"),
        ("/usr/bin/python3.13 -u train.py", "train.py"),
        ("python3 -m train x.py", "python3"),
        ("python3 -c 1 x.py", "python3"),
        ("python3 -W ignore train.py", "python3"),
        ("python3", "python3"),
        ("./train.sh a.py", "train.sh"),
    ],
)
def test_a_job_without_a_name_has_that_of_its_script_or_program(command: str, name: str) -> None:
    assert spec_of(command).metadata.name == name
    assert spec_of(command, "--name", "mine").metadata.name == "mine"


@pytest.mark.parametrize(
    "words",
    [
        ["x", "--output", "../../etc/passwd"],
        ["x", "--output", "/etc/hostname"],
        ["x", "--output", "dir/"],
        ["x", "--lease-seconds", "0"],
        ["x", "--param", "lr"],
        ["x", "--env", "=1"],
        ["x", "--task-params", "/nonexistent"],
        ["x", "a\0b"],
    ],
)
def test_what_breaks_a_rule_is_refused_before_anything_is_sent(words: list[str]) -> None:
    with pytest.raises(InvalidInput):
        spec_of(*words)


@pytest.mark.parametrize("content", ["{}", "[1]", "nonsense", "[" * 10**5])
def test_task_params_must_be_a_list_of_objects(tmp_path: Path, content: str) -> None:
    (tmp_path / "params.json").write_text(content)
    with pytest.raises(InvalidInput, match=r"params\.json"):
        spec_of("x", "--task-params", str(tmp_path / "params.json"))


def test_a_source_is_its_files_without_what_tools_leave(tmp_path: Path) -> None:
    for name in ("train.py", "pkg/a.py", ".git/config", "pkg/__pycache__/a.pyc", ".venv/x"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    (tmp_path / "run.sh").touch(0o755)
    (tmp_path / "alias.py").symlink_to("train.py")
    files = {file.path: file.executable for file in source.scan(tmp_path)}
    assert files == {"alias.py": False, "pkg/a.py": False, "run.sh": True, "train.py": False}


@pytest.mark.parametrize("target", ["/etc/hostname", "../outside", "missing", "pkg"])
def test_a_link_that_leaves_or_breaks_or_hides_a_tree_is_refused(
    tmp_path: Path, target: str
) -> None:
    root = tmp_path / "source"
    (root / "pkg").mkdir(parents=True)
    (tmp_path / "outside").touch()
    (root / "link").symlink_to(target)
    with pytest.raises(InvalidInput, match="link"):
        source.scan(root)


def test_a_special_file_and_a_bad_name_are_refused(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(InvalidInput, match="regular file"):
        source.scan(tmp_path)
    (tmp_path / "pipe").unlink()
    (tmp_path / "a\nb").touch()
    with pytest.raises(InvalidInput, match="rename"):
        source.scan(tmp_path)


def test_a_source_file_that_goes_away_before_it_is_sent_is_named(tmp_path: Path) -> None:
    (tmp_path / "train.py").touch()
    files = source.scan(tmp_path)
    (tmp_path / "train.py").unlink()
    client = CoordinatorClient("http://127.0.0.1:9")
    with client, pytest.raises(InvalidInput, match=r"train\.py cannot be read"):
        source.upload(client, files)


def test_a_word_that_is_too_long_for_a_file_name_is_no_problem(
    capsys: pytest.CaptureFixture[str],
) -> None:
    words = ["submit", "--coordinator", "http://127.0.0.1:9", "--", "echo", "x" * 5_000]
    assert main(words) == 1
    assert "cannot reach http://127.0.0.1:9: " in capsys.readouterr().err


def test_without_a_coordinator_the_remedy_is_named(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("FLASHML_COORDINATOR_URL", raising=False)
    assert main(["status", "job-1"]) == 2
    assert "--coordinator" in capsys.readouterr().err


@pytest.mark.parametrize("verb", ["submit", "status", "logs", "cancel"])
def test_an_unreachable_coordinator_is_one_line(
    verb: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([verb, "x", "--coordinator", "http://127.0.0.1:9"]) == 1
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    assert "http://127.0.0.1:9" in error


@pytest.mark.parametrize(
    "words",
    [
        ["submit", "true", "--env", "A", "--coordinator", "http://127.0.0.1:9"],
        ["submit", "true", "--max-restarts", "-1", "--coordinator", "http://127.0.0.1:9"],
        [],
        ["nonsense"],
        ["submit"],
        ["status"],
        ["serve", "--port", "x"],
        ["serve", "--port", "99999"],
    ],
)
def test_wrong_usage_is_two(words: list[str]) -> None:
    assert main(words) == 2


@pytest.mark.parametrize(
    ("words", "named"),
    [
        (["submit", "x", "--lease-seconds", "0"], "--lease-seconds 0.0: "),
        (["submit", "x", "--name", "a" * 2000], "--name"),
        (["submit", "x", "--output", "../up"], "--output"),
        (["submit", "x", "--param", ""], "--param"),
        (["submit", "x", "--max-restarts", "-1"], "--max-restarts: '-1' must"),
        (["submit", "x", "--parallel", "0"], "--parallel: '0' must"),
        (["submit", "x", "--timeout", "-1"], "--timeout: '-1' must"),
        (["submit", "x", "--no-progress", "nan"], "--no-progress: 'nan' must"),
        (["logs", "job-1", "--tail", "-1"], "--tail: '-1' must"),
        (["logs", "job-1", "--attempt", "0"], "--attempt: '0' must"),
    ],
)
def test_a_wrong_value_names_its_option(
    words: list[str], named: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*words, "--coordinator", "http://127.0.0.1:9"]) == 2
    assert named in capsys.readouterr().err


@pytest.mark.parametrize(
    ("url", "remedy"),
    [
        ("127.0.0.1:8000", "http://127.0.0.1:8000"),
        ("coordinator", "http://coordinator"),
        ("ftp://coordinator", "http://127.0.0.1:8000"),
        ("http://127.0.0.1:abc", "http://127.0.0.1:8000"),
        ("http://127.0.0.1:99999", "http://127.0.0.1:8000"),
    ],
)
@pytest.mark.parametrize("words", [["submit", "true"], ["status", "job-1"], ["work"]])
def test_a_wrong_address_names_the_option_and_the_remedy(
    words: list[str], url: str, remedy: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*words, "--coordinator", url]) == 2
    error = capsys.readouterr().err
    assert f"--coordinator {url!r} " in error
    assert error.endswith(f"e.g. {remedy}\n")
    assert "FLASHML" not in error


def test_help_lists_every_verb(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--help"]) == 0
    text = capsys.readouterr().out
    assert all(verb in text for verb in ("submit", "serve", "work", "verify"))
