"""The lines that set-up leaves in .env for compose, beside the user's own."""

import os
import subprocess
from pathlib import Path

import pytest

pytestmark = pytest.mark.integration

ROOT = Path(__file__).resolve().parents[3]


def in_shell(folder: Path, code: str, **environment: str) -> str:
    script = f'set -eu; . "{ROOT}/docker/lib.sh"; . "{ROOT}/docker/settings.sh"; {code}'
    kept = {
        "PATH": os.environ["PATH"],
        "HOME": str(folder),
        "SSL_CERT_FILE": str(folder / "ca.pem"),
    }
    done = subprocess.run(
        ["/bin/bash", "-c", script],
        cwd=folder,
        env=kept | environment,
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    return done.stdout


def written(folder: Path, **environment: str) -> list[str]:
    (folder / "ca.pem").touch()
    in_shell(folder, "load_settings; : ${BASE_IMAGE:=found:1}; write_env", **environment)
    return (folder / ".env").read_text().splitlines()


def test_a_fresh_env_file_holds_only_our_marked_lines(tmp_path: Path) -> None:
    lines = written(tmp_path)
    assert lines[0].startswith("# >>>")
    assert lines[-1].startswith("# <<<")
    assert "BASE_IMAGE=found:1" in lines
    assert f"CA_BUNDLE={tmp_path / 'ca.pem'}" in lines


def test_the_users_lines_are_kept_and_win(tmp_path: Path) -> None:
    (tmp_path / ".env").write_text("# mine\nFLASHML_PORT=9000\nBASE_IMAGE=my/python:3.13\n")
    lines = written(tmp_path)
    assert lines[:3] == ["# mine", "FLASHML_PORT=9000", "BASE_IMAGE=my/python:3.13"]
    assert sum(line.startswith("BASE_IMAGE=") for line in lines) == 1


def test_a_second_set_up_replaces_our_lines_and_adds_none(tmp_path: Path) -> None:
    (tmp_path / ".env").write_text("FLASHML_PORT=9000\n")
    written(tmp_path)
    again = written(tmp_path, BASE_IMAGE="other:2")
    assert "BASE_IMAGE=other:2" in again
    assert sum(line.startswith("BASE_IMAGE=") for line in again) == 1
    assert again.count("FLASHML_PORT=9000") == 1


def test_clean_takes_away_our_lines_only(tmp_path: Path) -> None:
    (tmp_path / ".env").write_text("FLASHML_PORT=9000\n")
    written(tmp_path)
    in_shell(tmp_path, "remove_env_block")
    assert (tmp_path / ".env").read_text() == "FLASHML_PORT=9000\n"


def test_an_env_file_that_was_only_ours_is_removed(tmp_path: Path) -> None:
    written(tmp_path)
    in_shell(tmp_path, "remove_env_block")
    assert not (tmp_path / ".env").exists()


def test_an_index_with_a_password_never_reaches_an_image_build(tmp_path: Path) -> None:
    lines = written(tmp_path, PIP_INDEX_URL="https://user:secret@example.invalid/simple")
    assert not any("secret" in line for line in lines)
