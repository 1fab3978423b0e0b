"""Copies out of GPU memory, with streams and events that only note what they are told."""

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


class Tensor:
    """A tensor that says where it is, and notes who is still to read it."""

    def __init__(self, device, value=0):
        import torch

        self.device, self.value, self.readers = torch.device(device), value, []

    def copy_(self, source, non_blocking):
        assert non_blocking
        self.value = source.value

    def record_stream(self, stream):
        self.readers.append(stream)


def test_copies_follow_what_was_queued_and_are_over_when_finished():
    from flashruntime.torch.devices import DeviceCopies

    cuda, host = Cuda(), [Tensor("cpu") for _ in range(2)]
    copies = DeviceCopies({}, cuda)
    copies.copy(host[0], Tensor("cuda:0", 1))
    copies.copy(host[1], Tensor("cuda:0", 2))
    copies.finish()
    after = "after training on cuda:0"
    assert cuda.calls == [
        "stream on cuda:0", after, "event", after, "enter", "leave", after, "enter", "leave",
        "event", "synchronize",
    ]  # fmt: skip
    assert [tensor.value for tensor in host] == [1, 2]


def test_memory_that_is_let_go_is_not_used_again_before_it_has_been_copied():
    from flashruntime.torch.devices import DeviceCopies

    streams, source = {}, Tensor("cuda:0")
    DeviceCopies(streams, Cuda()).copy(Tensor("cpu"), source)
    assert source.readers == [streams[source.device]]


def test_the_next_save_uses_the_stream_again_and_waits_for_the_training_again():
    from flashruntime.torch.devices import DeviceCopies

    cuda, streams = Cuda(), {}
    for _ in range(2):
        copies = DeviceCopies(streams, cuda)
        copies.copy(Tensor("cpu"), Tensor("cuda:0"))
        copies.finish()
    assert cuda.calls.count("stream on cuda:0") == 1
    assert cuda.calls.count("event") == 4


def test_each_device_is_waited_for():
    from flashruntime.torch.devices import DeviceCopies

    cuda = Cuda()
    copies = DeviceCopies({}, cuda)
    for device in ("cuda:0", "cuda:1"):
        copies.copy(Tensor("cpu"), Tensor(device))
    copies.finish()
    assert {f"after training on cuda:{n}" for n in (0, 1)} <= set(cuda.calls)
    assert cuda.calls[-2:] == ["synchronize", "synchronize"]


def test_waiting_for_the_training_s_own_work_is_told_apart_from_copying():
    import threading

    from flashruntime.torch.devices import DeviceCopies

    def waits(took_ms):
        cuda = Cuda(took_ms, lambda: threading.Event().wait(0.05))
        copies = DeviceCopies({}, cuda)
        copies.copy(Tensor("cpu"), Tensor("cuda:0"))
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
