"""Directories of runs and tasks."""

import os
from pathlib import Path
from threading import Event

import pytest

from flashruntime.errors import Conflict, NotFound
from flashruntime.sdk.home import RunHome, TaskHome, is_held, request_cancel


def test_a_directory_has_one_run_at_a_time(tmp_path: Path) -> None:
    first, second = RunHome(tmp_path / "out"), RunHome(tmp_path / "out")
    first.open()
    assert is_held(tmp_path / "out")
    with pytest.raises(Conflict, match=f"process {os.getpid()}"):
        second.open()
    first.close()
    assert not is_held(tmp_path / "out")
    second.open()
    second.close()


def test_a_request_from_elsewhere_reaches_the_run(tmp_path: Path) -> None:
    home, cancelled = RunHome(tmp_path), Event()
    home.open()
    home.listen(lambda _: cancelled.set())
    request_cancel(tmp_path)
    assert cancelled.wait(10)
    home.close()
    with pytest.raises(NotFound, match="no run is going on"):
        request_cancel(tmp_path)


def test_a_fifo_that_a_killed_submitter_left_counts_as_no_run(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / ".control")
    with pytest.raises(NotFound):
        request_cancel(tmp_path)


def test_attempts_are_counted_by_what_is_there(tmp_path: Path) -> None:
    task = TaskHome(tmp_path / "local")
    names = []
    for _ in range(12):
        place = task.next_attempt()
        place.mkdir()
        names.append(place.name)
    assert names[:3] == ["task-000", "task-000-r1", "task-000-r2"]
    assert names[-1] == "task-000-r11"


def test_a_task_directory_belongs_to_its_params(tmp_path: Path) -> None:
    task = TaskHome(tmp_path / "local-000")
    assert task.adopt({"x": 1}) is None
    assert task.adopt({"x": 1}) is None
    assert task.adopt({"x": 2}) == tmp_path / "local-000.old-1"
    assert task.adopt({"x": 1}) == tmp_path / "local-000.old-2"
