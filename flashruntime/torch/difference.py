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
from flashruntime.torch.shared import COMMON, own_state
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
        here = _states(first)
        there = here if same_parts(first.parts, second.parts) else _states(second)
    except CheckpointError:
        return compare_parts(first, second)
    differences = [] if there is here else _differences(here, there)
    placed = all(not each.what.startswith("sample position") for each in differences)
    return Comparison(differences, list(_facts(here, first.step)), HINT if placed else "")


def _states(found: Resume) -> list[dict[str, Any]]:
    """Return what each rank saved, by rank; that of rank 0 holds what all have in common."""
    others = (own_state(found, rank) for rank in range(1, found.manifest.world_size))
    return [unpack(found.parts), *others]


def _differences(first: list[dict[str, Any]], second: list[dict[str, Any]]) -> list[Difference]:
    """Return one difference a name, causes first: position, order, streams, then what follows.

    Of that, plain values and the user's own objects come before what every step changes.
    """
    if len(first) != len(second):
        return [Difference("number of ranks", f"{len(second)} instead of {len(first)}")]
    found: dict[str, Difference] = {}
    tops = {top for state in (*first, *second) for top in state}
    for top in sorted(tops, key=_urgency):
        for rank, (one, two) in enumerate(zip(first, second, strict=True)):
            for place, here, there in walk(one.get(top), two.get(top), _equal, (top,)):
                what = _name(place, here) + _owner(place, rank, len(first))
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


def _urgency(top: str) -> tuple[int, str]:
    return (CAUSES_FIRST.index(top) if top in CAUSES_FIRST else len(CAUSES_FIRST), top)


def _owner(place: Place, rank: int, size: int) -> str:
    """Say whose it is, where there are several ranks and they do not have it in common."""
    is_common = rank == 0 and len(place) > 1 and place[0] == "objects" and place[1] in COMMON
    return "" if size == 1 or is_common else f" of rank {rank}"


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


def _facts(states: list[dict[str, Any]], step: int) -> Iterator[str]:
    tensors = [tensor for state in states for tensor in _tensors(state.get("objects"))]
    values = sum(tensor.numel() for tensor in tensors)
    ranks = "" if len(states) == 1 else f" of {len(states)} ranks"
    yield f"{len(tensors)} tensors with {values} values{ranks}"
    streams = [name for name in states[0].get("rng") or {} if name != "generators"]
    if streams:
        yield f"RNG streams {', '.join(streams)}{ranks and ' of each rank'}"
    told = dict.fromkeys(_samples(each["data"], step) for each in states if each.get("data"))
    yield from told or [
        "no dataloader was given to prepare: what samples come next is in no checkpoint"
    ]


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
        ranks = data.get("ranks") or 1
        shares = {-(-size // ranks), size // ranks}
        for batches in {count for n in shares for count in (-(-n // batch_size), n // batch_size)}:
            if epoch * batches + batch == step:
                of_each = "" if ranks == 1 else " on each rank, over all ranks together"
                proof = f"{step} batches in {step} steps{of_each}"
                return f"{where}; {proof}: each sample exactly once an epoch"
    return where
