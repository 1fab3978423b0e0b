"""Work side by side: order, errors, and what happens where no thread can be had."""

import threading

import pytest

from flashruntime.checkpoint import store
from flashruntime.checkpoint.parallel import SideBySide
from flashruntime.errors import CheckpointError


def test_results_come_in_the_order_of_the_items():
    first_may_end = threading.Event()

    def work(number):
        if number == 0:
            first_may_end.wait(5)
        if number == 9:
            first_may_end.set()
        return number * number

    assert SideBySide(work, range(10), threads=2).results() == [n * n for n in range(10)]


def test_an_error_in_a_thread_is_raised_in_the_caller():
    def work(number):
        if number == 3:
            raise OSError(28, "No space left on device")
        return number

    with pytest.raises(OSError, match="No space"):
        SideBySide(work, range(10), threads=2).results()


def test_after_stop_no_item_is_touched():
    going, seen = threading.Event(), []

    def work(number):
        seen.append(number)
        going.wait(5)

    side = SideBySide(work, range(100), threads=1)
    threading.Timer(0.05, going.set).start()
    side.stop()
    count = len(seen)
    assert count < 100
    assert not any(thread.is_alive() for thread in side._threads)


def test_where_no_thread_can_be_started_the_caller_does_the_work(monkeypatch):
    def refused(self):
        raise RuntimeError("can't create new thread at interpreter shutdown")

    monkeypatch.setattr(threading.Thread, "start", refused)
    assert SideBySide(str, range(3)).results() == ["0", "1", "2"]


def test_an_interrupted_read_leaves_no_thread_at_the_files(tree, save, monkeypatch):
    """They would read through a descriptor that is closed, and may then be another's."""
    save(tree.begin(), 1)
    begun, go, sides = threading.Event(), threading.Event(), []

    def part(*_):
        begun.set()
        go.wait(5)
        raise CheckpointError("cannot be read")

    def interrupted(side):
        sides.append(side)
        begun.wait(5)
        threading.Timer(0.05, go.set).start()
        raise KeyboardInterrupt

    monkeypatch.setattr(store, "_part", part)
    monkeypatch.setattr(SideBySide, "results", interrupted)
    with pytest.raises(KeyboardInterrupt):
        store.load(tree.root, 1, lambda _: True)
    assert not any(thread.is_alive() for thread in sides[0]._threads)
