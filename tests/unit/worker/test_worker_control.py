"""When a worker stops trying, and what it can be made to react to."""

from itertools import islice
from pathlib import Path
from threading import Thread

import pytest

from flashruntime.errors import ConfigError, CoordinatorUnreachable, Superseded
from flashruntime.testing import ManualClock
from flashruntime.worker.control import (
    MAX_DELAY_S,
    AttemptControl,
    NoticeOver,
    StopRequest,
    delays_s,
    until_answered,
)
from flashruntime.worker.workspace import WorkerHome


def test_only_the_first_request_sets_the_deadline() -> None:
    clock = ManualClock()
    stop = StopRequest(20.0, clock)
    assert stop.remaining_s() == float("inf")
    stop.request()
    clock.advance(15.0)
    stop.request()
    assert stop.remaining_s() == pytest.approx(5.0)


def test_a_lost_lease_ends_every_wait_of_its_attempt() -> None:
    control = AttemptControl(StopRequest(20.0))
    thread = Thread(target=control.lose, args=("taken",))
    thread.start()
    control.await_change()
    with pytest.raises(Superseded, match="taken"):
        control.pause(3600)
    thread.join()


def test_a_call_is_repeated_until_it_is_answered() -> None:
    answers: list[Exception | int] = [CoordinatorUnreachable(), CoordinatorUnreachable(), 7]
    pauses: list[float] = []

    def call() -> int:
        answer = answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    assert until_answered(call, pauses.append) == 7
    assert len(pauses) == 2


def test_a_call_is_given_up_when_the_notice_is_over() -> None:
    stop = StopRequest(0.0)
    stop.request()

    def call() -> int:
        raise CoordinatorUnreachable

    with pytest.raises(NoticeOver):
        AttemptControl(stop).until_answered(call)


def test_delays_grow_to_their_bound_and_vary() -> None:
    delays = list(islice(delays_s(), 40))
    assert delays[0] <= 0.1
    assert all(delay <= MAX_DELAY_S for delay in delays)
    assert len(set(delays[-10:])) > 1
    assert min(delays[-10:]) >= MAX_DELAY_S / 2


def test_a_name_that_is_in_use_is_refused_until_its_worker_has_gone(tmp_path: Path) -> None:
    first = WorkerHome(tmp_path, "same")
    first.open()
    with pytest.raises(ConfigError, match="FLASHML_NODE_ID"):
        WorkerHome(tmp_path, "same").open()
    first.close(keep=False)
    WorkerHome(tmp_path, "same").open()


def test_only_what_dead_workers_left_is_removed(tmp_path: Path) -> None:
    alive, dead = WorkerHome(tmp_path, "alive"), WorkerHome(tmp_path, "dead")
    for home in (alive, dead):
        home.open()
        home.workspace("lease-1").create()
    dead.close(keep=True)
    WorkerHome(tmp_path, "new").open()
    assert alive.workspace("lease-1").files.is_dir()
    assert not dead.workspace("lease-1").root.exists()
