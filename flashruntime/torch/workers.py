"""Random streams of a loader's worker processes: seeded anew for each batch.

What a worker draws for a batch is then a function of the epoch and of the batch's number in it,
whichever worker makes it, and in whatever process the epoch goes on after a resume.
"""

import hashlib
import random
import sys
from collections.abc import Iterable, Iterator
from typing import Any

import torch


def seeded(batches: Iterable[Any], stream: torch.Tensor, epoch: int, first: int) -> Iterator[Any]:
    """Yield `batches`, numbered from `first`, as what seeds the worker that receives it.

    `stream` is the state of the random stream that the seeds derive from; nothing is drawn from it.
    """
    key = hashlib.sha256(stream.numpy().tobytes() + epoch.to_bytes(8, "big")).digest()
    for number, batch in enumerate(batches, first):
        yield _Parcel(batch, hashlib.sha256(key + number.to_bytes(8, "big")).digest())


class _Parcel:
    """The indices of one batch on their way to a worker, which unpickles them as they are."""

    def __init__(self, indices: Any, seed: bytes) -> None:
        self._content = indices, seed

    def __reduce__(self) -> tuple[Any, ...]:
        return _arrived, self._content


def _arrived(indices: Any, seed: bytes) -> Any:
    """Seed this worker's streams; it fetches `indices` next."""
    torch.manual_seed(int.from_bytes(seed[:8], "big"))
    random.seed(int.from_bytes(seed[8:16], "big"))
    numpy = sys.modules.get("numpy")
    if numpy is not None:
        numpy.random.seed(list(memoryview(seed[16:]).cast("I")))
    return indices
