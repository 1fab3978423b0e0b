"""Copies out of GPU memory, with the streams and events of a GPU that only notes what it is told.

Its copies happen at once, between CPU tensors: what is shown is the order of the calls.
"""

from contextlib import contextmanager

import pytest

pytestmark = pytest.mark.torch


class Cuda:
    """torch.cuda as far as it is used; a wait for an event takes as long as `wait` does."""

    def __init__(self, took_ms=0.0, wait=lambda: None):
        self.calls, self.took_ms, self.wait = [], took_ms, wait

    def current_stream(self, device):
        return f"training on {device}"

    @contextmanager
    def stream(self, stream):
        self.calls.append("enter")
        yield
        self.calls.append("leave")

    def Stream(self, device):  # noqa: N802 (the name in torch.cuda)
        self.calls.append(f"stream on {device}")
        return Stream(self)

    def Event(self, *, enable_timing, blocking):  # noqa: N802 (the name in torch.cuda)
        assert enable_timing
        return Event(self)


class Stream:
    def __init__(self, cuda):
        self.cuda = cuda

    def wait_stream(self, other):
        self.cuda.calls.append(f"after {other}")


class Event:
    def __init__(self, cuda):
        self.cuda = cuda

    def record(self, stream):
        assert isinstance(stream, Stream)
        self.cuda.calls.append("event")

    def synchronize(self):
        self.cuda.calls.append("synchronize")
        self.cuda.wait()

    def elapsed_time(self, end):
        assert isinstance(end, Event)
        return self.cuda.took_ms


def test_copies_follow_what_was_queued_and_are_over_when_finished():
    import torch

    from flashruntime.torch.devices import DeviceCopies

    cuda, target = Cuda(), torch.zeros(4)
    copies = DeviceCopies({}, cuda)
    copies.copy(target[:2], torch.ones(2))
    copies.copy(target[2:], torch.full((2,), 2.0))
    copies.finish()
    assert cuda.calls == [
        "stream on cpu", "after training on cpu", "event",
        "enter", "leave", "enter", "leave", "event", "synchronize",
    ]  # fmt: skip
    assert target.tolist() == [1, 1, 2, 2]


def test_the_next_save_uses_the_stream_again_and_waits_for_the_training_again():
    import torch

    from flashruntime.torch.devices import DeviceCopies

    cuda, streams = Cuda(), {}
    for _ in range(2):
        copies = DeviceCopies(streams, cuda)
        copies.copy(torch.zeros(2), torch.ones(2))
        copies.finish()
    assert cuda.calls.count("stream on cpu") == 1
    assert cuda.calls.count("after training on cpu") == 2


def test_each_device_is_waited_for():
    import torch

    from flashruntime.torch.devices import DeviceCopies

    class Of:
        """A tensor that says it is elsewhere."""

        def __init__(self, device):
            self.device = torch.device(device)

    class Target:
        def copy_(self, source, non_blocking):
            assert non_blocking

    cuda = Cuda()
    copies = DeviceCopies({}, cuda)
    for device in ("cuda:0", "cuda:1"):
        copies.copy(Target(), Of(device))
    copies.finish()
    assert {f"after training on cuda:{n}" for n in (0, 1)} <= set(cuda.calls)
    assert cuda.calls[-2:] == ["synchronize", "synchronize"]


def test_waiting_for_the_training_s_own_work_is_told_apart_from_copying():
    import threading

    import torch

    from flashruntime.torch.devices import DeviceCopies

    def waits(took_ms):
        cuda = Cuda(took_ms, lambda: threading.Event().wait(0.05))
        copies = DeviceCopies({}, cuda)
        copies.copy(torch.zeros(2), torch.ones(2))
        return copies.finish()

    assert waits(took_ms=0.0) >= 0.05
    assert waits(took_ms=60_000.0) == 0.0


def test_without_a_gpu_nothing_is_waited_for():
    from flashruntime.torch.devices import DeviceCopies

    cuda = Cuda()
    assert DeviceCopies({}, cuda).finish() < 0.05
    assert cuda.calls == []


def test_the_tensors_of_a_gpu_are_copied_by_its_stream(monkeypatch):
    """The device is a tensor's own word for it; its bytes are where they always were."""
    import torch

    from flashruntime.torch import state
    from flashruntime.torch.savable import Block

    class Storage:
        device = torch.device("cuda", 0)

    class Copies:
        def __init__(self, _streams):
            self.copied = []

        def copy(self, target, source):
            self.copied.append((target.numel(), source))

        def finish(self):
            return 1.5

    class Source:
        def set_(self, storage):
            assert isinstance(storage, Storage)
            return self

        def narrow(self, _dimension, start, count):
            return start, count

    monkeypatch.setattr(state, "DeviceCopies", Copies)
    packer = state.Packer()
    monkeypatch.setattr(state.torch, "empty", lambda *_, **__: Source())
    packer._copy([Block(Storage(), state.PART_BYTES + 100)])
    assert packer._copies.copied == [
        (state.PART_BYTES, (0, state.PART_BYTES)), (100, (state.PART_BYTES, 100)),
    ]  # fmt: skip
    assert packer.waited_s == 1.5
