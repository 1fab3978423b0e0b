"""How `jobs` tells ages."""

import pytest

from flashruntime.cli.jobs import age_text


@pytest.mark.parametrize(
    ("age_s", "text"),
    [(-3, "0s"), (0.4, "0s"), (59, "59s"), (60, "1m"), (3_599, "59m"), (7_300, "2h"), (9e5, "10d")],
)
def test_an_age_is_told_in_its_largest_unit(age_s: float, text: str) -> None:
    assert age_text(age_s) == text
