"""Random streams: captured and put back exactly."""

import random
import sys
from collections.abc import Mapping
from typing import Any

import torch

PYTHON, NUMPY, TORCH, CUDA = "python", "numpy", "torch", "cuda"


def capture() -> dict[str, Any]:
    """Return the state of every global random stream of this process."""
    streams: dict[str, Any] = {PYTHON: random.getstate(), TORCH: torch.get_rng_state()}
    numpy = sys.modules.get(NUMPY)
    if numpy is not None:
        streams[NUMPY] = numpy.random.get_state(legacy=False)
    if torch.cuda.is_available() and torch.cuda.is_initialized():
        streams[CUDA] = torch.cuda.get_rng_state_all()
    return streams


def restore(streams: Mapping[str, Any]) -> None:
    """Put the captured streams back."""
    version, words, gauss = streams[PYTHON]
    random.setstate((version, tuple(words), gauss))
    torch.set_rng_state(streams[TORCH])
    if NUMPY in streams:
        import numpy  # noqa: PLC0415 (only where the saved run used it)

        numpy.random.set_state(streams[NUMPY])
    if CUDA in streams and torch.cuda.is_available():
        torch.cuda.set_rng_state_all(streams[CUDA])
