"""The data of one loader, split over the ranks: every sample for one of them in each epoch.

All ranks draw one common order from a seed that they agreed upon and the number of the epoch, and
rank r of N takes every N-th item of it from the r-th on. Where the number of samples is no multiple
of N, drop_last decides: true leaves the rest out, false repeats some of the first (fewer than N),
so that all ranks do the same number of steps. The batch size is that of one rank.
"""

import copy
import random
import sys
from collections.abc import Iterator, Sized
from typing import Any, Protocol

import torch
from torch.utils.data import (
    BatchSampler,
    DataLoader,
    DistributedSampler,
    IterableDataset,
    RandomSampler,
    Sampler,
    SequentialSampler,
)

from flashruntime.errors import InvalidInput
from flashruntime.torch import rng

MAX_SEED = 2**31


class Share(Sampler[Any]):  # type: ignore[misc]
    """This rank's part of what any sampler (of samples, or of batches) gives.

    `inner` runs on every rank with the common streams that (seed, epoch) determine: `torch`,
    `random`, `numpy.random`, and the generator that it has. Those of the process stay untouched.
    """

    def __init__(self, inner: Any, rank: int, size: int, *, drop_last: bool) -> None:
        if not isinstance(inner, Sized):
            raise InvalidInput(
                f"dataloader: a {type(inner).__name__} without __len__ cannot be split over "
                f"{size} ranks; give it one, or use a DistributedSampler"
            )
        self.inner: Any = inner
        self.rank, self.num_replicas, self.drop_last = rank, size, drop_last
        self.seed = self.epoch = 0

    def __len__(self) -> int:
        count, size = len(self.inner), self.num_replicas
        return count // size if self.drop_last else -(-count // size)

    def __iter__(self) -> Iterator[Any]:
        items = self._common_order()
        size = self.num_replicas
        if self.drop_last:
            del items[len(items) // size * size :]
        elif items:
            missing = -len(items) % size
            items += (items * (missing // len(items) + 1))[:missing]
        return iter(items[self.rank :: size])

    def set_epoch(self, epoch: int) -> None:
        """Say which epoch comes next; a sampler inside that wants to know is told, too."""
        self.epoch = epoch
        if hasattr(self.inner, "set_epoch"):
            self.inner.set_epoch(epoch)

    def _common_order(self) -> list[Any]:
        generator = getattr(self.inner, "generator", None)
        own = generator if isinstance(generator, torch.Generator) else None
        before, own_before = rng.capture(), None if own is None else own.get_state()
        try:
            _seed_all((self.seed + self.epoch) % MAX_SEED, own)
            return [list(item) if isinstance(item, list) else item for item in self.inner]
        finally:
            rng.restore(before)
            if own is not None:
                own.set_state(own_before)


class Order(Protocol):
    """A sampler whose order derives from a seed."""

    seed: int


def split(loader: DataLoader[Any], rank: int, size: int) -> tuple[DataLoader[Any], Order | None]:
    """Return a loader with every setting of `loader`, and this rank's part of its samples.

    Beside it the sampler that has been put in, whose seed all ranks must agree on: so far it is
    the user's. A loader whose sampler knows of ranks already, or that has no order, is returned
    as it is.
    """
    has_order = loader.batch_sampler is not None and not isinstance(loader.dataset, IterableDataset)
    if is_split(loader) or not has_order:
        return loader, None
    batches = loader.batch_sampler
    part = copy.copy(loader)
    if type(batches) is BatchSampler:
        order = _part(batches.sampler, rank, size, drop_last=batches.drop_last)
        batches = BatchSampler(order, batches.batch_size, batches.drop_last)
        part.__dict__.update(sampler=order, batch_sampler=batches)
    else:
        drop_last = bool(getattr(batches, "drop_last", False))
        order = Share(batches, rank, size, drop_last=drop_last)
        part.__dict__.update(batch_sampler=order)
    order.seed = _seed_of(loader)
    return part, order


def is_split(loader: DataLoader[Any]) -> bool:
    """Return whether a sampler of `loader` already gives each rank its own part."""
    batches = loader.batch_sampler
    samplers = (loader.sampler, batches, getattr(batches, "sampler", None))
    return any(isinstance(getattr(each, "num_replicas", None), int) for each in samplers)


def _seed_of(loader: DataLoader[Any]) -> int:
    """Return the seed that the order of a run may derive from: the user's own."""
    for owner in (loader.batch_sampler, loader.sampler, loader):
        generator = getattr(owner, "generator", None)
        if isinstance(generator, torch.Generator):
            return int(generator.initial_seed()) % MAX_SEED
    return int(torch.initial_seed()) % MAX_SEED


def _part(sampler: Any, rank: int, size: int, *, drop_last: bool) -> Any:
    """Return PyTorch's own sampler for the two usual orders, `Share` for any other."""
    if type(sampler) is SequentialSampler:
        return DistributedSampler(
            sampler.data_source, size, rank, shuffle=False, drop_last=drop_last
        )
    once = type(sampler) is RandomSampler and not sampler.replacement
    if once and sampler.num_samples == len(sampler.data_source):
        return DistributedSampler(
            sampler.data_source, size, rank, shuffle=True, drop_last=drop_last
        )
    return Share(sampler, rank, size, drop_last=drop_last)


def _seed_all(seed: int, generator: torch.Generator | None) -> None:
    torch.default_generator.manual_seed(seed)
    random.seed(seed)
    numpy = sys.modules.get("numpy")
    if numpy is not None:
        numpy.random.seed(seed)
    if generator is not None:
        generator.manual_seed(seed)
