"""The verbs that need no coordinator."""

import socket
from pathlib import Path

import pytest

from flashruntime.checkpoint import Chain, Claim, Snapshot
from flashruntime.cli import main
from flashruntime.config import AccessSettings
from flashruntime.credentials import digest_of
from flashruntime.service.auth import TokenBook, parse_line


def test_a_port_in_use_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    """Case 157."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        assert main(["serve", "--port", str(port)]) == 1
    assert f"port {port} on 127.0.0.1 is in use" in capsys.readouterr().err


@pytest.mark.parametrize("host", ["192.0.2.1", "x" * 70])
def test_a_host_that_is_not_ours_is_named(
    host: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FLASHML_ALLOW_OPEN", "1")
    assert main(["serve", "--host", host, "--port", "0"]) == 1
    assert host in capsys.readouterr().err


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.0.2.1"])  # noqa: S104 (refused)
def test_an_address_that_others_reach_is_refused_without_tokens(
    host: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["serve", "--host", host, "--port", "0"]) == 2
    told = capsys.readouterr().err
    for word in (host, "FLASHML_TOKENS_FILE", "FLASHML_ALLOW_OPEN"):
        assert word in told


def test_a_file_of_tokens_that_cannot_be_used_stops_the_start(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FLASHML_TOKENS_FILE", str(tmp_path / "none"))
    assert main(["serve", "--port", "0"]) == 1
    assert "FLASHML_TOKENS_FILE" in capsys.readouterr().err


def test_a_new_token_and_its_line_fit_each_other(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["token", "--role", "worker", "--name", "gpu", "--nodes", "gpu-*,cpu"]) == 0
    printed = capsys.readouterr()
    token, line = printed.out.splitlines()
    known = parse_line(line.split())
    assert known.digest == digest_of(token)
    assert (known.caller.name, known.caller.nodes) == ("gpu", ("gpu-*", "cpu"))
    assert token not in line + printed.err


def test_a_new_token_is_let_in_by_the_file_it_is_added_to(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "tokens"
    for role, name in (("operator", "alice"), ("worker", "pool")):
        assert main(["token", "--role", role, "--name", name, "--file", str(file)]) == 0
    tokens = capsys.readouterr().out.split()
    book = TokenBook(AccessSettings(tokens_file=file))
    assert [caller.name for token in tokens if (caller := book.caller(token))] == ["alice", "pool"]
    assert file.stat().st_mode & 0o777 == 0o600
    assert list(tmp_path.iterdir()) == [file]


@pytest.mark.parametrize(
    "words",
    [
        ["--role", "root", "--name", "x"],
        ["--role", "worker", "--name", "a b"],
        ["--role", "worker"],
        ["--role", "operator", "--name", "x", "--nodes", "*"],
    ],
)
def test_a_token_for_nobody_is_refused(
    words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["token", *words]) == 2
    assert capsys.readouterr().out == ""


def test_an_error_of_the_file_system_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["verify", "x" * 300]) == 1
    assert "File name too long" in capsys.readouterr().err


def test_a_wrong_setting_of_a_worker_is_named(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("FLASHML_NOTICE_S", "soon")
    assert main(["work"]) == 1
    assert "FLASHML_NOTICE_S" in capsys.readouterr().err


def test_a_directory_without_checkpoints_is_no_success(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["verify", str(tmp_path)]) == 1
    assert main(["verify", str(tmp_path / "missing")]) == 1
    assert "missing" in capsys.readouterr().err


def test_every_tree_is_verified_and_a_corrupt_checkpoint_is_a_failure(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for task in ("task-0", "task-1"):
        (tmp_path / "job" / task).mkdir(parents=True)
        chain = Chain.begin(tmp_path / "job" / task, Claim(f"attempt-{task}", "job"))
        for step in (20, 40):
            chain.save(Snapshot(step, {"weights": b"weights"}))
    assert main(["verify", str(tmp_path)]) == 0
    assert capsys.readouterr().out.count("valid") == 4
    (tmp_path / "job/task-1/step-000040/weights").write_bytes(b"weightz")
    assert main(["verify", str(tmp_path)]) == 1
    shown = capsys.readouterr().out.splitlines()
    (bad,) = [line for line in shown if "corrupt" in line]
    assert "task-1/step-000040" in bad
    assert "weights" in bad
