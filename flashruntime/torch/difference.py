"""Where two checkpoints of training runs differ: which tensor, RNG stream or sample position."""

from collections.abc import Iterator
from typing import Any

import torch

from flashruntime.checkpoint.difference import (
    Comparison,
    Difference,
    Place,
    compare_parts,
    same_bits,
    same_parts,
    shown,
    walk,
)
from flashruntime.checkpoint.store import Resume
from flashruntime.errors import CheckpointError
from flashruntime.torch.state import unpack

CAUSES_FIRST = ("data", "rng")
HINT = (
    "random streams and sample position are equal: look for state that prepare was not given: a "
    "scheduler, a counter, a tensor, a random.Random or Generator of your own (a data set's too)"
)


def compare_states(first: Resume, second: Resume) -> Comparison:
    """Compare what the helper saved; other contents are compared part by part.

    Parts of other bytes may still hold the same state: then there is no difference.
    """
    try:
        here = unpack(first.parts)
        there = here if same_parts(first.parts, second.parts) else unpack(second.parts)
    except CheckpointError:
        return compare_parts(first, second)
    differences = [] if there is here else _differences(here, there)
    placed = all(not each.what.startswith("sample position") for each in differences)
    return Comparison(differences, list(_facts(here, first.step)), HINT if placed else "")


def _differences(first: dict[str, Any], second: dict[str, Any]) -> list[Difference]:
    """Return one difference a name, causes first: position, order, streams, then what follows.

    Of that, plain values and the user's own objects come before what every step changes.
    """
    found: dict[str, Difference] = {}
    for top in sorted(first.keys() | second.keys(), key=_rank):
        for place, here, there in walk(first.get(top), second.get(top), _equal, (top,)):
            what = _name(place, here)
            if what not in found:
                found[what] = Difference(what, _detail(here, there), "RNG stream" in what)
    return sorted(found.values(), key=_follows)


def _follows(difference: Difference) -> int:
    """Return how many causes may lie before this: a weight follows from all the rest."""
    if not difference.what.startswith(("value ", "tensor ")):
        return 0
    kind, name = difference.what.split(maxsplit=1)
    trained = name.startswith(("model.", "optimizer."))
    return 1 + (kind == "tensor") + (kind == "tensor" and trained)


def _rank(top: str) -> tuple[int, str]:
    return (CAUSES_FIRST.index(top) if top in CAUSES_FIRST else len(CAUSES_FIRST), top)


def _equal(first: Any, second: Any) -> bool:
    first, second = _tensor(first), _tensor(second)
    if not isinstance(first, torch.Tensor) or not isinstance(second, torch.Tensor):
        return same_bits(first, second)
    if (first.dtype, first.shape, first.layout) != (second.dtype, second.shape, second.layout):
        return False
    if first.layout is not torch.strided or first.is_quantized:
        return bool(torch.equal(_dense(first), _dense(second)))
    return bool(torch.equal(_bytes(first), _bytes(second)))


def _tensor(value: Any) -> Any:
    return torch.from_numpy(value) if type(value).__name__ == "ndarray" else value


def _dense(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.dequantize() if tensor.is_quantized else tensor.to_dense()


def _bytes(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.detach().contiguous().reshape(-1).view(torch.uint8)


def _name(place: Place, value: Any) -> str:
    """Return what a place in the helper's state means to its user."""
    top, *rest = place
    if top == "objects":
        kind = "tensor" if isinstance(_tensor(value), torch.Tensor) else "value"
        return f"{kind} {'.'.join(map(str, rest))}"
    if top == "rng" and rest:
        return _stream(rest)
    if top == "data" and rest[:1] == ["start"]:
        return f"sample order of the epoch under way ({_stream(rest[1:])})"
    if top == "data":
        return f"sample position {'.'.join(map(str, rest))}".rstrip()
    return ".".join(map(str, place))


def _stream(rest: list[object]) -> str:
    if rest[:1] == ["generators"]:
        return f"RNG stream of the loader's generator {rest[1] if len(rest) > 1 else ''}".rstrip()
    return f"RNG stream {rest[0]}" if rest else "RNG streams"


def _detail(first: Any, second: Any) -> str:
    first, second = _tensor(first), _tensor(second)
    if not isinstance(first, torch.Tensor) or not isinstance(second, torch.Tensor):
        return f"{_short(second)} instead of {_short(first)}"
    if (first.dtype, first.shape) != (second.dtype, second.shape):
        return f"{_short(second)} instead of {_short(first)}"
    here, there = (
        _dense(each) if each.layout is not torch.strided or each.is_quantized else each
        for each in (first, second)
    )
    rows = (_bytes(each).reshape(here.numel(), -1) for each in (here, there))
    unequal = (next(rows) != next(rows)).any(1)
    at = int(unequal.nonzero()[0])
    pair = f"{there.reshape(-1)[at].item()!r} instead of {here.reshape(-1)[at].item()!r}"
    return f"{int(unequal.sum())} of {here.numel()} values, the first at index {at}: {pair}"


def _short(value: Any) -> str:
    if isinstance(value, torch.Tensor):
        return f"{str(value.dtype).removeprefix('torch.')}{list(value.shape)}"
    return shown(value)


def _facts(state: dict[str, Any], step: int) -> Iterator[str]:
    tensors = list(_tensors(state.get("objects")))
    values = sum(tensor.numel() for tensor in tensors)
    yield f"{len(tensors)} tensors with {values} values"
    streams = [name for name in state.get("rng") or {} if name != "generators"]
    if streams:
        yield f"RNG streams {', '.join(streams)}"
    data = state.get("data")
    if data:
        yield _samples(data, step)
    else:
        yield "no dataloader was given to prepare: what samples come next is in no checkpoint"


def _tensors(value: Any) -> Iterator[torch.Tensor]:
    value = _tensor(value)
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, dict):
        for item in value.values():
            yield from _tensors(item)
    elif isinstance(value, list | tuple):
        for item in value:
            yield from _tensors(item)


def _samples(data: dict[str, Any], step: int) -> str:
    """Say where the loader stands; one batch a step from the start means none twice, none left."""
    epoch, batch, size, batch_size = map(data.get, ("epoch", "batch", "size", "batch_size"))
    where = f"sample position: epoch {epoch}, batch {batch}"
    if epoch is not None and batch is not None and size and batch_size:
        for batches in {-(-size // batch_size), size // batch_size}:
            if epoch * batches + batch == step:
                proof = f"{step} batches in {step} steps"
                return f"{where}; {proof}: each sample exactly once an epoch"
    return where
