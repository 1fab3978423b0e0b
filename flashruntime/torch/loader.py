"""A DataLoader that goes on in the middle of an epoch with exactly the batches not yet seen.

The order of an epoch is drawn from the random streams when its first batch is asked for. Their
state at that moment is what a checkpoint keeps: a resumed epoch draws the same order again, drops
the batches already handed out without loading them, and puts the checkpoint's streams back.
"""

import copy
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch.utils.data import BatchSampler, DataLoader, IterableDataset, SequentialSampler

from flashruntime.errors import CheckpointError, InvalidInput
from flashruntime.torch import rng, workers

Streams = dict[str, Any]


@dataclass(frozen=True, slots=True)
class _Replay:
    """Draw the order from `start`, drop `skip` batches, go on with the streams of `after`."""

    start: Streams
    skip: int
    after: Streams | None


class Position:
    """Where in the data a run is; counts a batch as seen once it was handed out.

    A pass that is left early counts as an epoch only if a checkpoint call fell into or after it:
    looking at one batch before the training loop changes nothing.
    """

    def __init__(self, loader: DataLoader[Any]) -> None:
        self.epoch = 0
        self.batch = 0
        self.resumed = False
        self._size = len(loader.dataset)
        self._batch_size = loader.batch_size
        self._start: Streams | None = None
        self._active = False
        self._touched = False
        self._left_early = False
        self._pending: _Replay | None = None
        self._current: _Replay | None = None

    def begin(self) -> _Replay | None:
        """A pass begins; return what it has to replay."""
        if self._active:
            self.end(complete=False)
        self._current, self._pending = self._pending, None
        self.batch = self._current.skip if self._current else 0
        self._active, self._touched, self._left_early = True, False, False
        return self._current

    def ordered(self, start: Streams) -> None:
        """The pass drew its order while the streams were at `start`."""
        self._start = start

    def end(self, *, complete: bool) -> None:
        """The pass ended, or was left early."""
        self._active = False
        if complete or self._touched:
            self.epoch += 1
        else:
            self._pending = self._current
            self._left_early = self._current is None and self.batch > 0
        self.batch = self._pending.skip if self._pending else 0

    def touch(self) -> None:
        """A checkpoint call counts what was handed out so far."""
        if self._active:
            self._touched = True
        elif self._left_early:
            self._left_early = False
            self.epoch += 1

    def state_dict(self) -> dict[str, Any]:
        """Return the position for a checkpoint."""
        start = self._start if self._active else None
        if self._pending is not None:
            start = self._pending.start
        return {
            "epoch": self.epoch,
            "batch": self.batch if start else 0,
            "start": start,
            "size": self._size,
            "batch_size": self._batch_size,
        }

    def load_state_dict(self, state: Mapping[str, Any], after: Streams) -> None:
        """Go on at a saved position with the saved streams `after`."""
        self.epoch, self.batch, self.resumed = state["epoch"], state["batch"], True
        if state["start"] is None:
            return
        now = (self._size, self._batch_size)
        saved = (state["size"], state["batch_size"])
        if now != saved:
            raise CheckpointError(
                "checkpoint does not match this source: dataloader: it was in the middle of an "
                f"epoch over {saved[0]} samples in batches of {saved[1]}, "
                f"now there are {now[0]} in batches of {now[1]}"
            )
        self._pending = _Replay(state["start"], state["batch"], after)


class _Order:
    """The loader's own batch sampler, able to start again at a noted state."""

    def __init__(self, loader: DataLoader[Any], position: Position) -> None:
        self.inner: Any = loader.batch_sampler
        self.replay: _Replay | None = None
        self.to_workers = False
        self._position = position
        self._generators = _generators(loader)
        self._seeds_from_generator = isinstance(loader.generator, torch.Generator)
        plain = type(self.inner) is BatchSampler and type(self.inner.sampler) is SequentialSampler
        self._draws_up_front = not plain and hasattr(self.inner, "__len__")

    def __len__(self) -> int:
        return len(self.inner)

    def __iter__(self) -> Iterator[Any]:
        replay, self.replay = self.replay, None
        to_workers, self.to_workers = self.to_workers, False
        if replay:
            self.restore(replay.start)
        start = self.capture()
        self._position.ordered(start)
        batches = iter(self.inner)
        if self._draws_up_front:
            batches = iter([list(batch) for batch in batches])
        skip = replay.skip if replay else 0
        for _ in range(skip):
            next(batches, None)
        if replay and replay.after:
            rng.restore(replay.after)
            if self._draws_up_front:
                self._restore_generators(replay.after)
        if to_workers:
            stream = start["generators"][0] if self._seeds_from_generator else start[rng.TORCH]
            batches = workers.seeded(batches, stream, self._position.epoch, skip)
        yield from batches

    def capture(self) -> Streams:
        """Return all streams that an order may be drawn from."""
        states = [generator.get_state() for generator in self._generators]
        return {**rng.capture(), "generators": states}

    def restore(self, streams: Streams) -> None:
        """Put all streams back."""
        rng.restore(streams)
        self._restore_generators(streams)

    def _restore_generators(self, streams: Streams) -> None:
        for generator, state in zip(self._generators, streams["generators"], strict=True):
            generator.set_state(state)

    def set_epoch(self, epoch: int) -> None:
        """Tell samplers that derive their order from the epoch's number."""
        samplers: list[Any] = [self.inner, getattr(self.inner, "sampler", None)]
        for sampler in samplers:
            if hasattr(sampler, "set_epoch"):
                sampler.set_epoch(epoch)


class ResumableLoader(DataLoader[Any]):  # type: ignore[misc]
    """Mixed into the class of the user's loader by `resumable`; never built directly."""

    flash_position: Position
    flash_order: _Order

    @property
    def epoch(self) -> int:
        """The number of the epoch that is under way or comes next, from 0."""
        return self.flash_position.epoch

    def __iter__(self) -> Iterator[Any]:
        position, order = self.flash_position, self.flash_order
        order.replay = position.begin() or self._without_new_workers()
        order.to_workers = self.num_workers > 0
        order.set_epoch(position.epoch)
        complete = False
        try:
            for batch in super().__iter__():
                position.batch += 1
                yield batch
            complete = True
        finally:
            position.end(complete=complete)

    def _without_new_workers(self) -> _Replay | None:
        """Undo the draw that only the first pass of persistent workers makes.

        In a resumed process that pass is not the first one of the run.
        """
        position = self.flash_position
        first = self.persistent_workers and self._iterator is None
        if first and position.resumed and position.epoch > 0:
            return _Replay(self.flash_order.capture(), 0, None)
        return None


def resumable(loader: DataLoader[Any]) -> ResumableLoader:
    """Return a loader with every setting of `loader` whose position can be saved.

    Worker processes draw what the interrupted run's drew: `torch`, `random` and `numpy.random` are
    seeded there before each batch (after worker_init_fn, whose own seeding of them is replaced).
    Generators that a data set keeps itself in a worker cannot be restored: let it draw from those
    three. InvalidInput where an exact resume is impossible.
    """
    if isinstance(loader.dataset, IterableDataset):
        raise InvalidInput(
            "dataloader: an IterableDataset cannot be resumed in the middle of an epoch; use a "
            "map-style dataset (__getitem__ and __len__), or do not pass the loader to prepare"
        )
    if loader.batch_sampler is None:
        raise InvalidInput("dataloader: batch_size=None has no batches to count; give a batch size")
    if loader.num_workers > 0 and not getattr(loader, "in_order", True):
        raise InvalidInput("dataloader: in_order=False has no order to resume; leave it True")
    wrapped = copy.copy(loader)
    base = type(loader)
    wrapped.__class__ = type(f"Resumable{base.__name__}", (ResumableLoader, base), {})
    assert isinstance(wrapped, ResumableLoader)  # noqa: S101 (for the type checker)
    position = Position(loader)
    order = _Order(loader, position)
    wrapped.__dict__.update(
        flash_position=position, flash_order=order, batch_sampler=order, _iterator=None
    )
    return wrapped


def _generators(loader: DataLoader[Any]) -> list[torch.Generator]:
    """Return the distinct generators that the loader or its samplers draw from."""
    batch_sampler = loader.batch_sampler
    owners = [loader, batch_sampler, loader.sampler, getattr(batch_sampler, "sampler", None)]
    found: list[torch.Generator] = []
    for owner in owners:
        generator = getattr(owner, "generator", None)
        if isinstance(generator, torch.Generator) and not any(generator is each for each in found):
            found.append(generator)
    return found
