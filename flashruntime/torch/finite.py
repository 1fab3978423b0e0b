"""Whether a model's parameters are still numbers, looked at in the bytes that are to be saved."""

from collections.abc import Collection
from typing import Any

import torch

from flashruntime.checkpoint.files import Buffer

DTYPES = (torch.float16, torch.bfloat16, torch.float32, torch.float64)
# Below this many elements torch works on the calling thread alone.
CHUNK_ELEMENTS = 32_767


def parameter_names(model: Any) -> frozenset[str]:
    """Return the names of the parameters of a module; of anything else there are none."""
    if not isinstance(model, torch.nn.Module):
        return frozenset()
    return frozenset(name for name, _ in model.named_parameters(remove_duplicate=False))


def watched_tensors(state: dict[str, Any], names: Collection[str], key: str) -> dict[str, int]:
    """Return the numbers of the model's tensors with these names in a state taken apart."""
    model = state.get("objects", {}).get("model")
    if not isinstance(model, dict) or not names:
        return {}
    found = {name: model.get(name) for name in names}
    return {name: each[key] for name, each in found.items() if isinstance(each, dict)}


def has_nan(data: Buffer, dtype: torch.dtype) -> bool:
    """Return whether any of the floating-point numbers in `data` is NaN."""
    if dtype not in DTYPES or not memoryview(data).nbytes:
        return False
    numbers = torch.frombuffer(data, dtype=dtype)
    return any(
        bool(chunk.sum().isnan()) and bool(chunk.isnan().any())
        for chunk in numbers.split(CHUNK_ELEMENTS)
    )
