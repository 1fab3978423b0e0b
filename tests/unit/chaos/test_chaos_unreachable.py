"""A coordinator that gives no answer: the harness goes on, and its judges do not know."""

from collections.abc import Callable
from typing import Any

import pytest

from chaos.model import JobRequest, Unreachable
from chaos.targets.runtime import CoordinatorRuntime


@pytest.mark.parametrize(
    "call",
    [
        lambda runtime: runtime.nodes(),
        lambda runtime: runtime.submit("main", JobRequest("digits", ("true",))),
        lambda runtime: runtime.job("main", "job-1"),
        lambda runtime: runtime.final("job-1"),
    ],
)
def test_no_answer_is_told_as_unreachable(call: Callable[[CoordinatorRuntime], Any]) -> None:
    with pytest.raises(Unreachable):
        call(CoordinatorRuntime(lambda: "http://127.0.0.1:1"))
