"""The processes that train together: who this one is, how they meet, agree and part.

What is agreed upon goes over a group of its own (gloo, CPU), apart from the gradients. A rank
whose peer died learns of it from the closed connection, without waiting for a timeout.
"""

import atexit
import contextlib
import faulthandler
import json
import logging
import os
import socket
import sys
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, TypeVar

import torch
from torch import distributed

from flashruntime.errors import CheckpointError, ConfigError, FlashError, NotFinite, Superseded

PATIENCE_S = 30
LEAVE_S = 10
YIELD_S = 0.005
LOOPBACK_ADDRESSES = {"127.0.0.1", "localhost", "::1"}
T = TypeVar("T")
log = logging.getLogger(__name__)
_RAISED_ON_ALL = {each.__name__: each for each in (CheckpointError, NotFinite, Superseded)}
_MET: list["Ranks"] = []


@dataclass(frozen=True, slots=True)
class Place:
    """Where this process stands among those that were launched together."""

    rank: int = 0
    size: int = 1
    local_rank: int = 0
    local_size: int = 1

    @classmethod
    def from_env(cls, env: Mapping[str, str]) -> "Place":
        """Read what torchrun sets; ConfigError names the variable that is missing or wrong."""
        size = _number(env, "WORLD_SIZE", 1, range(1, 2**31))
        if size == 1:
            return cls()
        rank = _number(env, "RANK", None, range(size))
        local_size = _number(env, "LOCAL_WORLD_SIZE", _local_size(env, size), range(1, size + 1))
        return cls(rank, size, _number(env, "LOCAL_RANK", rank, range(size)), local_size)


def place() -> Place:
    """Return the place of this process: in its process group if it has one, else as launched."""
    launched = Place.from_env(os.environ)
    if not _met():
        return launched
    rank, size = distributed.get_rank(), distributed.get_world_size()
    return Place(
        rank, size, launched.local_rank if launched.size > 1 else rank, launched.local_size
    )


def device() -> torch.device:
    """Return the device to train on."""
    if not torch.cuda.is_available():
        return torch.device("cpu")
    return torch.device("cuda", place().local_rank % torch.cuda.device_count())


def backend() -> str:
    """Return the backend that carries tensors of `device`: NCCL wants a GPU for each rank."""
    if _met():
        used = str(distributed.get_backend())
        return "nccl" if "nccl" in used else used
    fits = torch.cuda.is_available() and place().local_size <= torch.cuda.device_count()
    available = distributed.is_available() and distributed.is_nccl_available()
    return "nccl" if fits and available else "gloo"


class Ranks:
    """All ranks as one; every method that talks must be called on each of them, in one order."""

    def __init__(self, at: Place | None = None, control: Any = None) -> None:
        at = at or Place()
        self.rank, self.size = at.rank, at.size
        self._control = control
        self._last: tuple[Any, ...] = ()

    @classmethod
    def meet(cls) -> "Ranks":
        """Join the others; a process group is made where the script has none, and ended at exit."""
        at = place()
        if at.size == 1:
            return cls(at)
        if not _met():
            _open(at)
        ranks = cls(at, distributed.new_group(backend="gloo"))
        _MET.append(ranks)
        return ranks

    @property
    def is_main(self) -> bool:
        """Whether this rank speaks for all."""
        return self.rank == 0

    def highest(self, numbers: list[int]) -> list[int]:
        """Return the highest that any rank gave, number by number."""
        if self.size == 1:
            return numbers
        tensor = torch.tensor(numbers, dtype=torch.int64)
        reducing = distributed.ReduceOp.MAX
        work = distributed.all_reduce(tensor, reducing, group=self._control, async_op=True)
        self._wait(work, tensor)
        return [int(number) for number in tensor.tolist()]

    def share(self, data: bytes) -> list[bytes]:
        """Return what every rank gave, by rank."""
        if self.size == 1:
            return [data]
        (longest,) = self.highest([len(data)])
        rows = [torch.empty(longest + 8, dtype=torch.uint8) for _ in range(self.size)]
        row = _row(data, longest)
        work = distributed.all_gather(rows, row, group=self._control, async_op=True)
        self._wait(work, row, *rows)
        return [bytes(_content(each)) for each in rows]

    def collect(self, data: bytes, longest: int) -> list[memoryview]:
        """Return what every rank gave, by rank; on rank 0 only.

        No rank may give more than `longest` bytes, which must be the same number on all.
        """
        count = self.size if self.is_main else 0
        rows = [torch.empty(longest + 8, dtype=torch.uint8) for _ in range(count)]
        row = _row(data, longest)
        work = distributed.gather(row, rows or None, dst=0, group=self._control, async_op=True)
        self._wait(work, row, *rows)
        return [_content(each) for each in rows]

    def tell(self, content: Any) -> Any:
        """Return what rank 0 gave, which JSON must be able to hold."""
        data = json.dumps(content).encode() if self.is_main else b""
        return content if self.size == 1 else json.loads(self.share(data)[0])

    def together(self, action: Callable[[], T]) -> T:
        """Run `action`; unless it succeeds on every rank, raise the same error on each.

        `action` must not talk to the other ranks. Alone, its own error is raised as it is.
        """
        if self.size == 1:
            return action()
        error: Exception | None = None
        try:
            result = action()
        except Exception as failed:  # noqa: BLE001 (the boundary between processes)
            error = failed
        if self.highest([int(error is not None)]) != [0]:
            self.fail(error)
        return result

    def on_main(self, action: Callable[[], T]) -> T | None:
        """As `together`, but only rank 0 runs `action`; the others return None."""
        return self.together(lambda: action() if self.is_main else None)

    def fail(self, error: Exception | None) -> None:
        """Raise the error of the first rank that has one; on all ranks, once they know of it.

        It begins with the words of the cause and names the rank: a CheckpointError, or of the
        cause's own type where that is one or Superseded.
        """
        told = [json.loads(each) for each in self.share(json.dumps(_told(error)).encode())]
        rank, first = next((rank, each) for rank, each in enumerate(told) if each)
        kind = _RAISED_ON_ALL.get(first["type"], CheckpointError)
        raise kind(f"{first['text']} [on rank {rank} of {self.size}]") from error

    def _wait(self, work: Any, *tensors: torch.Tensor) -> None:
        """Wait for the other ranks, and say so where that takes long.

        The tensors are held until the next time: a thread of gloo must not be the last to let go.
        """
        self._last = (work, *tensors)
        while True:
            try:
                work.wait(timedelta(seconds=PATIENCE_S))
            except RuntimeError as error:
                if "Operation timed out" not in str(error):
                    raise
                log.warning(
                    "rank %d of %d has waited %s s for the other ranks in flashruntime.torch; "
                    "prepare and checkpoint must be called on every rank, for the same steps",
                    self.rank, self.size, PATIENCE_S,
                )  # fmt: skip
            else:
                return


def _told(error: Exception | None) -> dict[str, Any] | None:
    if error is None:
        return None
    name = type(error).__name__
    text = str(error) if isinstance(error, FlashError) else f"{name}: {error}"
    return {"text": text[:4000], "type": name}


def _row(data: bytes, longest: int) -> torch.Tensor:
    """Return `data` behind its length, filled up with zeros."""
    framed = bytearray(longest + 8)
    framed[:8] = len(data).to_bytes(8, "big")
    framed[8 : 8 + len(data)] = data
    return torch.frombuffer(framed, dtype=torch.uint8)


def _content(row: torch.Tensor) -> memoryview:
    view = memoryview(row.numpy())
    return view[8 : 8 + int.from_bytes(view[:8], "big")]


def _met() -> bool:
    return bool(distributed.is_available() and distributed.is_initialized())


def _open(at: Place) -> None:
    """Make the process group. A PyTorch without libuv has a store of the older kind only."""
    for name in ("MASTER_ADDR", "MASTER_PORT"):
        if not os.environ.get(name):
            raise ConfigError(f"WORLD_SIZE is {at.size} but {name} is not set; launch by torchrun")
    if at.local_size == at.size:
        for name in ("GLOO_SOCKET_IFNAME", "NCCL_SOCKET_IFNAME"):
            os.environ.setdefault(name, _loopback())
    os.environ.setdefault("USE_LIBUV", str(int(_has_libuv())))
    chosen = backend()
    if chosen == "nccl":
        torch.cuda.set_device(device())
    distributed.init_process_group("cpu:gloo,cuda:nccl" if chosen == "nccl" else chosen)
    atexit.register(_leave)


def _leave() -> None:
    """End the process group; a collective that no peer will ever join must not hold the exit up.

    The end waits, holding the interpreter's lock, for threads of gloo; one may still want that lock
    to let a tensor go, and gets it before.
    """
    if not _met():
        return
    threading.Event().wait(YIELD_S)
    with contextlib.suppress(Exception):
        faulthandler.dump_traceback_later(LEAVE_S, exit=True, file=sys.__stderr__ or 2)
    with contextlib.suppress(RuntimeError):
        distributed.destroy_process_group()
    faulthandler.cancel_dump_traceback_later()


def _has_libuv() -> bool:
    try:
        distributed.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False, use_libuv=True)
    except RuntimeError as error:
        return "libuv" not in str(error)
    return True


def _loopback() -> str:
    names = [name for _, name in socket.if_nameindex()]
    return next((name for name in ("lo", "lo0") if name in names), names[0] if names else "lo")


def _local_size(env: Mapping[str, str], size: int) -> int:
    """Return how many ranks are on this machine where the launcher does not say."""
    return size if env.get("MASTER_ADDR") in LOOPBACK_ADDRESSES else 1


def _number(env: Mapping[str, str], name: str, default: int | None, allowed: range) -> int:
    text = env.get(name) or ("" if default is None else str(default))
    number = int(text) if text.isdecimal() and len(text) < 12 else -1
    if number not in allowed:
        raise ConfigError(
            f"{name} must be a number from {allowed.start} to {allowed.stop - 1}, not {text!r}; "
            "torchrun sets it"
        )
    return number
