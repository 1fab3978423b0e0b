"""The state of a training run taken apart: containers without tensors, and what tensors lie in.

Containers are copied, so that later changes to them do not matter; tensors are only looked at.
"""

from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from flashruntime.errors import InvalidInput

NUMPY_KEY = "flashruntime.numpy"
TENSOR_KEY = "flashruntime.tensor"
RESERVED = (NUMPY_KEY, TENSOR_KEY)
ATOMS = (type(None), bool, int, float, complex, str, bytes)
ATOM_TYPES = frozenset(ATOMS)
TORCH_ATOMS = (torch.dtype, torch.device, torch.Size)
MAX_DEPTH = 100


@dataclass(frozen=True, slots=True)
class Block:
    """Bytes to save in one piece: a whole storage, or `view` alone, out of a larger one."""

    storage: torch.UntypedStorage
    size_bytes: int
    view: torch.Tensor | None = None

    def content(self) -> torch.UntypedStorage:
        """Return a storage with these bytes alone: of a view, a copy made now."""
        if self.view is None:
            return self.storage
        return self.view.clone(memory_format=torch.contiguous_format).untyped_storage()


@dataclass(frozen=True, slots=True)
class _Seen:
    """A tensor of the state, with its place in memory."""

    tensor: torch.Tensor
    storage: torch.UntypedStorage
    view: tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class TakenApart:
    """`skeleton` holds {TENSOR_KEY: n} for the tensor that `tensors[n]` describes.

    A description is (block, dtype, size, stride, offset, requires_grad, is_parameter).
    """

    skeleton: dict[str, Any]
    tensors: list[tuple[Any, ...]]
    blocks: list[Block]


class Parting:
    """Takes one state apart."""

    def __init__(self) -> None:
        self._numbers: dict[int, int] = {}
        self._seen: list[_Seen] = []
        self._views: set[tuple[Any, ...]] = set()
        self._used_bytes: dict[int, int] = {}
        self._kept: list[object] = []

    def part(self, state: dict[str, Any]) -> TakenApart:
        """Return the parts of `state`; InvalidInput names what would need code to be loaded."""
        skeleton = self._convert(state, "", 0)
        blocks: list[Block] = []
        numbers: dict[tuple[Any, ...], int] = {}
        tensors = [self._describe(seen, blocks, numbers) for seen in self._seen]
        return TakenApart(skeleton, tensors, blocks)

    def _convert(self, value: Any, where: str, depth: int) -> Any:
        if isinstance(value, torch.Tensor):
            return self._tensor(value)
        if type(value) in ATOMS or isinstance(value, TORCH_ATOMS):
            return value
        if depth > MAX_DEPTH:
            raise InvalidInput(f"state {where[:200]!r} is nested more than {MAX_DEPTH} deep")
        if isinstance(value, dict):
            items = {
                key: self._convert(each, f"{where}.{key}", depth + 1) for key, each in value.items()
            }
            return _checked(like(value, items), where)
        if type(value) in (list, tuple):
            if ATOM_TYPES.issuperset(map(type, value)):
                return value[:]
            return type(value)(
                [self._convert(each, f"{where}[{i}]", depth + 1) for i, each in enumerate(value)]
            )
        return self._foreign(value, where)

    def _foreign(self, value: Any, where: str) -> Any:
        if type(value).__module__ == "numpy":
            plain = value.item() if getattr(value, "shape", None) == () else value
            if type(plain).__module__ != "numpy":
                return self._convert(plain, where, 0)
            try:
                return {NUMPY_KEY: self._tensor(self._from_numpy(value))}
            except TypeError as error:
                raise InvalidInput(f"state {where[1:]!r}: {error}") from error
        raise InvalidInput(
            f"state {where[1:]!r} holds a {type(value).__name__}, which a checkpoint cannot: let "
            "state_dict() return numbers, text, lists, tuples, dicts, tensors and NumPy arrays"
        )

    def _from_numpy(self, array: Any) -> torch.Tensor:
        if any(stride < 0 for stride in array.strides) or not array.flags.writeable:
            array = array.copy()
        tensor = torch.from_numpy(array)
        self._kept.append(tensor)
        return tensor

    def _tensor(self, tensor: torch.Tensor) -> Any:
        """Describe a plain tensor; copy one of another kind (sparse, quantized, a subclass)."""
        if not _is_plain(tensor):
            own = tensor.detach().clone()
            return own.cpu() if own.is_cuda else own
        number = self._numbers.get(id(tensor))
        if number is None:
            number = self._numbers[id(tensor)] = len(self._seen)
            storage = tensor.untyped_storage()
            size, stride = tuple(tensor.size()), tensor.stride()
            view = (storage._cdata, tensor.storage_offset(), size, stride, tensor.dtype)
            self._seen.append(_Seen(tensor, storage, view))
            if view not in self._views:
                self._views.add(view)
                self._used_bytes[view[0]] = self._used_bytes.get(view[0], 0) + tensor.nbytes
        return {TENSOR_KEY: number}

    def _describe(
        self, seen: _Seen, blocks: list[Block], numbers: dict[tuple[Any, ...], int]
    ) -> tuple[Any, ...]:
        """Save the whole storage where its views make it up, else each view on its own."""
        tensor, storage = seen.tensor, seen.storage
        number, offset, size, stride, dtype = seen.view
        is_whole = storage.nbytes() <= self._used_bytes[number]
        key = (number,) if is_whole else seen.view
        block = Block(storage, storage.nbytes())
        if not is_whole:
            block = Block(storage, tensor.nbytes, tensor.detach())
            stride, offset = torch.empty(size, device="meta").stride(), 0
        if key not in numbers:
            numbers[key] = len(blocks)
            blocks.append(block)
        is_parameter = isinstance(tensor, torch.nn.Parameter)
        return (numbers[key], dtype, size, stride, offset, tensor.requires_grad, is_parameter)


def like(original: dict[Any, Any], items: dict[Any, Any]) -> dict[Any, Any]:
    """Return a plain dict or OrderedDict; the latter keeps the versions a module notes on it."""
    if not isinstance(original, OrderedDict):
        return items
    result = OrderedDict(items)
    metadata = getattr(original, "_metadata", None)
    if metadata is not None:
        result._metadata = metadata  # type: ignore[attr-defined]
    return result


def rebuild(value: Any, leaf: Callable[[Any], Any]) -> Any:
    """Return a copy of nested containers in which `leaf` has replaced what they hold."""
    if isinstance(value, dict):
        if len(value) == 1 and next(iter(value)) in RESERVED:
            return leaf(value)
        return like(value, {key: rebuild(each, leaf) for key, each in value.items()})
    if type(value) in (list, tuple):
        return type(value)([rebuild(each, leaf) for each in value])
    return leaf(value)


def _checked(items: dict[Any, Any], where: str) -> dict[Any, Any]:
    for key in items:
        if type(key) not in ATOMS:
            raise InvalidInput(f"state {where[1:]!r} has the key {key!r}; use text or numbers")
    return items


def _is_plain(tensor: torch.Tensor) -> bool:
    return (
        type(tensor) in (torch.Tensor, torch.nn.Parameter)
        and tensor.layout is torch.strided
        and not tensor.is_quantized
        and tensor.device.type != "meta"
        and not tensor.is_conj()
        and not tensor.is_neg()
    )
