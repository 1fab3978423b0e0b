"""Exact resume for PyTorch scripts: `import flashruntime.torch as ft`.

model, optimizer, loader = ft.prepare(model, optimizer, loader, scheduler=scheduler)
step = ft.start_step()
while step < total:
    for batch in loader:
        ...; step += 1
        ft.checkpoint(model, optimizer, step=step, every=100)
"""

from collections.abc import Mapping
from functools import cache
from typing import Any, Literal, TypeVar

import torch

from flashruntime.attempt import Attempt
from flashruntime.torch import ranks
from flashruntime.torch.session import Session, Stateful

__all__ = [
    "Stateful",
    "backend",
    "checkpoint",
    "device",
    "flush",
    "is_main",
    "log_metrics",
    "prepare",
    "rank",
    "start_step",
    "world_size",
]

Model = TypeVar("Model", bound=Stateful)
Optimizer = TypeVar("Optimizer", bound=Stateful | None)


@cache
def _session() -> Session:
    return Session(Attempt.from_env())


def prepare(
    model: Model,
    optimizer: Optimizer = None,  # type: ignore[assignment]
    dataloader: Any = None,
    **stateful: Stateful,
) -> tuple[Model, Optimizer, Any]:
    """Restore everything from the newest valid checkpoint, if there is one.

    Returns the triple, the loader so that it goes on at the batch where the checkpoint was taken
    (`loader.epoch` is the number of the epoch). `stateful`: whatever has state_dict and
    load_state_dict. CheckpointError where the checkpoint does not fit what is given. With
    WORLD_SIZE > 1 the model comes back in DistributedDataParallel, the loader with this rank's
    part of the data.
    """
    wrapped, loader = _session().prepare(model, optimizer, dataloader, stateful)
    return wrapped, optimizer, loader


def checkpoint(
    model: Stateful,
    optimizer: Stateful | None = None,
    *,
    step: int,
    every: int | Literal["auto"] | None = None,
    **stateful: Stateful,
) -> None:
    """Say that `step` steps are done, and save all that `prepare` was given, as it is now.

    Saves at multiples of `every`: None means at each call, 0 or less never, "auto" as often as
    loses least (Daly 2006, from the cost of a save and FLASHML_MTBF_S, the mean time between
    failures that is assumed until the job's own are known: 4 hours). The call pays for a copy;
    writing happens behind the training, and what fails there is raised by a later call, or makes
    the process end with a nonzero code. After SIGTERM it saves in any case, durably, and exits
    with 143. Call it at the end of a step.
    """
    _session().checkpoint(model, optimizer, stateful, step, every)


def flush() -> None:
    """Wait until the last checkpoint is durable; raise CheckpointError where it cannot be."""
    _session().attempt.flush()


def start_step() -> int:
    """Return how many steps the restored checkpoint has behind it; 0 at a fresh start."""
    return _session().start_step


def log_metrics(metrics: Mapping[str, object]) -> None:
    """Merge `metrics` of rank 0 into metrics.json; never raises, NaN becomes null."""
    if is_main():
        _session().attempt.log(metrics)


def rank() -> int:
    """Return the rank of this process."""
    return ranks.place().rank


def world_size() -> int:
    """Return how many processes train together."""
    return ranks.place().size


def is_main() -> bool:
    """Return whether this process speaks for all."""
    return rank() == 0


def device() -> torch.device:
    """Return the device to train on."""
    return ranks.device()


def backend() -> str:
    """Return the name of the communication backend that suits `device`."""
    return ranks.backend()
