"""When a worker stops trying, and what it can be made to react to."""

import os
from itertools import islice
from pathlib import Path
from threading import Thread

import pytest

from flashruntime.errors import (
    AccessDenied,
    ConfigError,
    CoordinatorUnreachable,
    Superseded,
    TokenRefused,
)
from flashruntime.testing import ManualClock
from flashruntime.worker import workspace
from flashruntime.worker.control import (
    MAX_DELAY_S,
    REFUSED_DELAY_S,
    AttemptControl,
    NoticeOver,
    StopRequest,
    delays_s,
    until_answered,
)
from flashruntime.worker.workspace import WorkerHome, check_writable


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


def test_a_refused_token_is_waited_for_as_it_may_be_known_later() -> None:
    answers: list[Exception | int] = [
        TokenRefused("x"),
        CoordinatorUnreachable("x", retry_after_s=3.0),
        7,
    ]
    unreachable: list[float] = []
    refused: list[float] = []

    def call() -> int:
        answer = answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    assert until_answered(call, unreachable.append, refused.append) == 7
    assert (unreachable, refused) == ([3.0], [REFUSED_DELAY_S])


def test_what_a_token_may_not_do_is_not_asked_again() -> None:
    def call() -> int:
        raise AccessDenied

    with pytest.raises(AccessDenied):
        until_answered(call, lambda _: None)


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


def test_what_is_no_directory_of_a_worker_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "agents/other/lock").mkdir(parents=True)
    (tmp_path / "agents/notes.txt").touch()
    WorkerHome(tmp_path, "new").open()
    assert (tmp_path / "agents/notes.txt").exists()
    assert (tmp_path / "agents/other/lock").exists()


def test_a_directory_that_cannot_be_locked_is_named(tmp_path: Path) -> None:
    (tmp_path / "agents/name/lock").mkdir(parents=True)
    with pytest.raises(ConfigError, match=r"FLASHML_WORK_DIR.*agents/name"):
        WorkerHome(tmp_path, "name").open()


def test_workers_of_one_process_id_in_several_containers_share_a_volume(tmp_path: Path) -> None:
    """The probe of one must not take away that of another."""
    (tmp_path / f".writable-{os.getpid()}").mkdir()
    check_writable(tmp_path, "FLASHML_CHECKPOINT_ROOT")


def test_a_worker_that_starts_while_another_clears_up_after_it_keeps_its_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Workers of one volume come back together: none may remove what another has just locked."""
    killed, home = WorkerHome(tmp_path, "back"), WorkerHome(tmp_path, "back")
    killed.open()
    killed.close(keep=True)
    clear = workspace.remove_tree

    def come_back(path: Path) -> None:
        if (path / "lock").exists():
            monkeypatch.setattr(workspace, "remove_tree", clear)
            (path / "lock").unlink()
            home.open()
            home.workspace("lease-1").create()
        clear(path)

    monkeypatch.setattr(workspace, "remove_tree", come_back)
    for name in ("first", "second"):
        WorkerHome(tmp_path, name).open()
        assert home.workspace("lease-1").files.is_dir()
    with pytest.raises(ConfigError, match="already runs"):
        WorkerHome(tmp_path, "back").open()
