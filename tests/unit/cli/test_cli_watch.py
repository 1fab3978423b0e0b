"""Following a job whose coordinator does not answer."""

from itertools import count
from typing import cast

import pytest

from flashruntime.cli import watch
from flashruntime.client import CoordinatorClient
from flashruntime.errors import CoordinatorUnreachable


class Silent:
    """Takes fifty seconds for not answering."""

    def __init__(self) -> None:
        self.calls = 0

    def events(self, *_: object, **__: object) -> object:
        self.calls += 1
        raise CoordinatorUnreachable


def test_the_time_that_unanswered_calls_take_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    client, clock_s = Silent(), count(0, 50)
    monkeypatch.setattr(watch.time, "monotonic", lambda: float(next(clock_s)))
    monkeypatch.setattr(watch, "POLL_S", 0.0)
    with pytest.raises(CoordinatorUnreachable):
        watch.follow(cast(CoordinatorClient, client), "job-1")
    assert client.calls == 3
