"""The README's own training script, in the image that it is run in."""

import os
import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SCRIPT = re.compile(r"## Your own training script\n\n```python\n(.*?)```", re.DOTALL)
pytestmark = pytest.mark.integration


@pytest.fixture
def place(tmp_path: Path) -> Path:
    found = SCRIPT.search((ROOT / "README.md").read_text())
    assert found
    (tmp_path / "train.py").write_text(found[1])
    return tmp_path


def train(place: Path) -> str:
    """Run it in the image and return its output."""
    argv = [
        "docker", "run", "--rm", "--network", "none", "--label",
        "dev.flashruntime.owner=flashruntime", "--user", f"{os.getuid()}:{os.getgid()}",
        "--volume", f"{place}:/mine", "--workdir", "/mine", "flashruntime/runtime:local",
        "python3", "train.py",
    ]  # fmt: skip
    done = subprocess.run(argv, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_it_trains_and_a_second_call_goes_on_from_the_end_with_the_same_result(
    place: Path,
) -> None:
    train(place)
    first = (place / "metrics.json").read_text()
    (place / "metrics.json").unlink()
    said = train(place)
    assert '"event":"resumed"' in said
    assert "checkpoint_committed" not in said
    assert (place / "metrics.json").read_text() == first
