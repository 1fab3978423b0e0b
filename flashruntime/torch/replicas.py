"""A model that is the same on every rank: wrapped for data parallel training, exactly resumable."""

from typing import Any

import torch
from torch.nn.parallel import DistributedDataParallel


def replicate(model: Any) -> Any:
    """Return `model` in DistributedDataParallel; one that is wrapped, or learns nothing, as it is.

    Weights and buffers become those of rank 0.
    """
    if isinstance(model, DistributedDataParallel):
        if _device_type(model.module) == "cpu":
            _fix_buckets(model)
        return model
    if not any(each.requires_grad for each in model.parameters()):
        return model
    device = _device(model)
    on_gpu = device is not None and device.type == "cuda"
    wrapped = _Replica(model, device_ids=[device] if on_gpu else None)
    _fix_buckets(wrapped)
    return wrapped


def plain(model: Any) -> Any:
    """Return the model itself, without its wrapper."""
    return model.module if isinstance(model, DistributedDataParallel) else model


def with_own_buffers(model: Any) -> bool:
    """Return whether each rank has buffers of its own, which the wrapper leaves alone."""
    is_wrapped = isinstance(model, DistributedDataParallel)
    return is_wrapped and not model.broadcast_buffers and any(True for _ in model.module.buffers())


class _Replica(DistributedDataParallel):  # type: ignore[misc]
    """Parameters count from the last one, which gets its gradient first."""

    def _build_params_for_reducer(self) -> Any:
        parameters, expects_sparse = super()._build_params_for_reducer()
        return parameters[::-1], expects_sparse[::-1]


def _fix_buckets(model: Any) -> None:
    """Lay the gradients out once and for all, not anew after the first backward pass.

    With three or more ranks the order in which gradients are summed depends on where they lie: the
    first step after a resume would differ in its last bits from that of the undisturbed run.
    """
    reducer = model.reducer
    if hasattr(reducer, "_push_all_rebuilt_params") and not model.find_unused_parameters:
        reducer._push_all_rebuilt_params()
        reducer._rebuild_buckets()


def _device(model: Any) -> torch.device | None:
    """Return the only device of the model's parameters, None where there are several."""
    found = {each.device for each in model.parameters()}
    return found.pop() if len(found) == 1 else None


def _device_type(model: Any) -> str | None:
    device = _device(model)
    return None if device is None else device.type
