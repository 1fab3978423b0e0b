"""Copies out of the memory of GPUs: queued on a stream of their own, timed by the GPU itself."""

import time
from typing import Any

import torch

MS_PER_S = 1000.0


class DeviceCopies:
    """The copies of one save. The `streams`, one a device, are reused from save to save.

    The copies begin when all is done that was queued before them; events around them tell how long
    they took without that.
    """

    def __init__(self, streams: dict[torch.device, Any], cuda: Any = torch.cuda) -> None:
        self._streams = streams
        self._cuda = cuda
        self._started: dict[torch.device, Any] = {}

    def copy(self, target: torch.Tensor, source: torch.Tensor) -> None:
        """Queue a copy to `target`, in pinned host memory; the memory of `source` is kept for it.

        It follows what the training's stream has to do by then, such as to make `source`.
        """
        device = source.device
        if device not in self._started:
            self._begin(device)
        stream = self._streams[device]
        stream.wait_stream(self._cuda.current_stream(device))
        with self._cuda.stream(stream):
            target.copy_(source, non_blocking=True)
        source.record_stream(stream)

    def finish(self) -> float:
        """Wait for the copies; return how many seconds of that went to what was queued before."""
        began_s = time.monotonic()
        ends = {device: self._record(device, blocking=True) for device in self._started}
        for end in ends.values():
            end.synchronize()
        waited_s = time.monotonic() - began_s
        took_ms = [start.elapsed_time(ends[device]) for device, start in self._started.items()]
        return max(0.0, waited_s - max(took_ms, default=0.0) / MS_PER_S)

    def _begin(self, device: torch.device) -> None:
        if device not in self._streams:
            self._streams[device] = self._cuda.Stream(device)
        self._streams[device].wait_stream(self._cuda.current_stream(device))
        self._started[device] = self._record(device)

    def _record(self, device: torch.device, *, blocking: bool = False) -> Any:
        event = self._cuda.Event(enable_timing=True, blocking=blocking)
        event.record(self._streams[device])
        return event
