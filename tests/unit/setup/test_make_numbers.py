"""The numbers that a user gives to make are looked at before anything is set up."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]


def said(folder: Path, *command: str, **environment: str) -> tuple[int, str]:
    """Run a command in a copy of the scripts, without any engine to be found."""
    shutil.copytree(ROOT / "docker", folder / "docker", ignore=shutil.ignore_patterns("bin"))
    shutil.copy(ROOT / "Makefile", folder)
    kept = {"PATH": os.environ["PATH"], "HOME": str(folder), "FLASHML_ENGINE": "never"}
    done = subprocess.run(
        command,
        cwd=folder,
        env=kept | environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    return done.returncode, done.stderr


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("WORKERS", "0"),
        ("WORKERS", "abc"),
        ("WORKERS", "-1"),
        ("WORKERS", "2.5"),
        ("FLASHML_PORT", "abc"),
        ("FLASHML_PORT", "0"),
        ("FLASHML_PORT", "65536"),
        ("FLASHML_PORT", "08000"),
        ("SEED", "seven"),
        ("SEED", "9223372036854775808"),
    ],
)
@pytest.mark.parametrize("script", [("docker/setup.sh", "stack"), ("docker/stack.sh", "up")])
def test_a_number_that_breaks_a_rule_is_refused_first(
    tmp_path: Path, script: tuple[str, str], name: str, value: str
) -> None:
    code, text = said(tmp_path, *script, **{name: value})
    assert code == 2
    assert f"error: {name}={value} must be a whole number from" in text
    assert not (tmp_path / ".cache").exists()


@pytest.mark.parametrize(
    "words", [("up", "WORKERS=0"), ("up", "FLASHML_PORT=abc"), ("chaos", "SEED=x")]
)
def test_make_hands_the_numbers_on(tmp_path: Path, words: tuple[str, str]) -> None:
    code, text = said(tmp_path, "make", *words)
    assert code == 2
    assert f"error: {words[1]} must be a whole number from" in text
    assert not (tmp_path / ".cache").exists()


def test_a_port_of_the_env_file_is_looked_at_too(tmp_path: Path) -> None:
    (tmp_path / ".env").write_text("FLASHML_PORT=eight\n")
    assert said(tmp_path, "docker/setup.sh", "stack")[0] == 2


@pytest.mark.parametrize("numbers", [{}, {"WORKERS": "4", "SEED": "0", "FLASHML_PORT": "8123"}])
def test_good_numbers_pass(tmp_path: Path, numbers: dict[str, str]) -> None:
    script = ". docker/lib.sh; . docker/settings.sh; check_numbers"
    assert said(tmp_path, "bash", "-euc", script, **numbers) == (0, "")
