"""How `jobs` tells ages, and what a missing extra is told as."""

import subprocess
import sys

import pytest

from flashruntime.cli.jobs import age_text


@pytest.mark.parametrize(
    ("age_s", "text"),
    [(-3, "0s"), (0.4, "0s"), (59, "59s"), (60, "1m"), (3_599, "59m"), (7_300, "2h"), (9e5, "10d")],
)
def test_an_age_is_told_in_its_largest_unit(age_s: float, text: str) -> None:
    assert age_text(age_s) == text


def test_a_missing_extra_is_told_as_what_the_checkout_installs() -> None:
    code = "import sys; sys.modules['httpx'] = None; from flashruntime.cli import main; "
    code += "sys.exit(main(['jobs', '--coordinator', 'http://127.0.0.1:1']))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert done.stderr == (
        "flashruntime jobs: needs httpx: in the checkout, pip install '.[client]'\n"
    )
