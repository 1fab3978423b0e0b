"""Training state as checkpoint parts, and back: plain values and tensors only, never code."""

import io
from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Callable
from itertools import accumulate
from typing import Any

import torch
from torch.serialization import get_crc32_options, set_crc32_options

from flashruntime.errors import CheckpointError, InvalidInput

PART_BYTES = 16 * 1024 * 1024
PART_NAME = "state-{:05d}.bin"
NUMPY_KEY = "flashruntime.numpy"
ATOMS = (type(None), bool, int, float, complex, str, bytes)
TORCH_ATOMS = (torch.dtype, torch.device, torch.Size)


class Packer:
    """Turns states into parts, in buffers that are reused from one save to the next."""

    def __init__(self) -> None:
        self._sink = _PartsWriter()

    def pack(self, state: dict[str, Any]) -> dict[str, memoryview]:
        """Return `state` as parts, which hold until the next call.

        Tied tensors stay tied; a view takes the room of its own elements, not of its base.
        InvalidInput names an entry that could not be loaded without running code.
        """
        savable = _Savable(state).value
        self._sink.rewind()
        checksums = get_crc32_options()
        set_crc32_options(False)
        try:
            torch.save(savable, self._sink)
        finally:
            set_crc32_options(checksums)
        return self._sink.parts()


def unpack(parts: dict[str, bytearray]) -> dict[str, Any]:
    """Return the state in the parts; CheckpointError where they hold none.

    MemoryError says nothing about the parts: a checkpoint must not be given up for it.
    """
    try:
        chunks = [parts[PART_NAME.format(index)] for index in range(len(parts))]
        source = io.BufferedReader(_PartsReader(chunks), buffer_size=1024 * 1024)
        state = torch.load(source, map_location="cpu", weights_only=True)
    except MemoryError:
        raise
    except Exception as error:
        if "DefaultCPUAllocator: can't allocate memory" in str(error):
            raise MemoryError(str(error)[:300]) from error
        raise CheckpointError(
            f"verifies but does not load: {type(error).__name__}: {str(error)[:300]}"
        ) from error
    if not isinstance(state, dict):
        raise CheckpointError("verifies but does not hold a training state")
    restored = _rebuild(state, _from_numpy_form)
    assert isinstance(restored, dict)  # noqa: S101 (for the type checker)
    return restored


class _Savable:
    """A copy of the containers of `state` that torch.load(weights_only=True) accepts."""

    def __init__(self, state: dict[str, Any]) -> None:
        self._views: dict[tuple[Any, ...], torch.Tensor] = {}
        self._storages: dict[int, int] = {}
        self._compact: dict[tuple[Any, ...], torch.Tensor] = {}
        checked = self._convert(state, "", 0)
        for view, tensor in self._views.items():
            size_bytes = tensor.numel() * tensor.element_size()
            self._storages[view[0]] = self._storages.get(view[0], 0) + size_bytes
        self.value = _rebuild(checked, self._compacted)

    def _convert(self, value: Any, where: str, depth: int) -> Any:
        if isinstance(value, torch.Tensor):
            return self._seen(value)
        if type(value) in ATOMS or isinstance(value, TORCH_ATOMS):
            return value
        if depth > 100:
            raise InvalidInput(f"state {where[:200]!r} is nested more than 100 deep")
        if isinstance(value, dict):
            items = (
                (key, self._convert(v, f"{where}.{key}", depth + 1)) for key, v in value.items()
            )
            return _like(value, items, where)
        if type(value) in (list, tuple):
            return type(value)(
                self._convert(item, f"{where}[{i}]", depth + 1) for i, item in enumerate(value)
            )
        return self._foreign(value, where)

    def _foreign(self, value: Any, where: str) -> Any:
        if type(value).__module__ == "numpy":
            if getattr(value, "shape", None) == () and hasattr(value, "item"):
                return self._convert(value.item(), where, 0)
            try:
                return {NUMPY_KEY: self._seen(torch.from_numpy(value))}
            except TypeError as error:
                raise InvalidInput(f"state {where[1:]!r}: {error}") from error
        raise InvalidInput(
            f"state {where[1:]!r} holds a {type(value).__name__}, which a checkpoint cannot: let "
            "state_dict() return numbers, text, lists, tuples, dicts, tensors and NumPy arrays"
        )

    def _seen(self, tensor: torch.Tensor) -> torch.Tensor:
        if tensor.layout is torch.strided:
            self._views[_view(tensor)] = tensor
        return tensor

    def _compacted(self, value: Any) -> Any:
        """Copy a view out of a base of which only a part is saved; equal views share the copy."""
        if not isinstance(value, torch.Tensor) or value.layout is not torch.strided:
            return value
        view = _view(value)
        if value.untyped_storage().nbytes() <= self._storages[view[0]]:
            return value
        return self._compact.setdefault(view, value.detach().clone())


class _PartsWriter:
    """A file for torch.save that fills buffers of the size of a part and keeps them."""

    def __init__(self) -> None:
        self._buffers: list[bytearray] = []
        self._views: list[memoryview] = []
        self._size_bytes = 0

    def rewind(self) -> None:
        """Start again at the first buffer; what `parts` returned becomes invalid."""
        for view in self._views:
            view.release()
        self._views, self._size_bytes = [], 0

    def write(self, data: bytes | memoryview) -> int:
        view = memoryview(data).cast("B")
        size_bytes = len(view)
        while view:
            index, start = divmod(self._size_bytes, PART_BYTES)
            piece = view[: PART_BYTES - start]
            if index == len(self._buffers):
                self._buffers.append(bytearray())
            self._buffers[index][start : start + len(piece)] = piece
            self._size_bytes += len(piece)
            view = view[len(piece) :]
        return size_bytes

    def flush(self) -> None:
        """Nothing is buffered elsewhere."""

    def parts(self) -> dict[str, memoryview]:
        left_bytes = self._size_bytes
        for buffer in self._buffers[: -(-self._size_bytes // PART_BYTES)]:
            self._views.append(memoryview(buffer)[: min(left_bytes, PART_BYTES)])
            left_bytes -= PART_BYTES
        return {PART_NAME.format(index): view for index, view in enumerate(self._views)}


class _PartsReader(io.RawIOBase):
    """The parts as one file, without joining them in memory."""

    def __init__(self, chunks: list[bytearray]) -> None:
        self._chunks = [memoryview(chunk) for chunk in chunks]
        self._ends = list(accumulate(len(chunk) for chunk in chunks))
        self._size_bytes = self._ends[-1] if chunks else 0
        self._offset = 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._offset

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        base = {io.SEEK_SET: 0, io.SEEK_CUR: self._offset, io.SEEK_END: self._size_bytes}[whence]
        self._offset = max(0, base + offset)
        return self._offset

    def readinto(self, buffer: Any) -> int:
        if self._offset >= self._size_bytes:
            return 0
        index = bisect_right(self._ends, self._offset)
        start = self._offset - (self._ends[index] - len(self._chunks[index]))
        target = memoryview(buffer).cast("B")
        piece = self._chunks[index][start : start + len(target)]
        target[: len(piece)] = piece
        self._offset += len(piece)
        return len(piece)


def _view(tensor: torch.Tensor) -> tuple[Any, ...]:
    storage = tensor.untyped_storage()
    place = (tensor.storage_offset(), tuple(tensor.size()), tensor.stride(), tensor.dtype)
    return (storage._cdata, *place)


def _like(original: dict[Any, Any], items: Any, where: str) -> dict[Any, Any]:
    """Return a plain dict or OrderedDict; the latter keeps the versions a module notes on it."""
    if not isinstance(original, OrderedDict):
        result = dict(items)
    else:
        result = OrderedDict(items)
        metadata = getattr(original, "_metadata", None)
        if metadata is not None:
            result._metadata = metadata  # type: ignore[attr-defined]
    for key in result:
        if type(key) not in ATOMS:
            raise InvalidInput(f"state {where[1:]!r} has the key {key!r}; use text or numbers")
    return result


def _rebuild(value: Any, leaf: Callable[[Any], Any]) -> Any:
    if isinstance(value, dict):
        if value.keys() == {NUMPY_KEY}:
            return leaf({NUMPY_KEY: leaf(value[NUMPY_KEY])})
        return leaf(_like(value, ((key, _rebuild(v, leaf)) for key, v in value.items()), ""))
    if type(value) in (list, tuple):
        return type(value)(_rebuild(item, leaf) for item in value)
    return leaf(value)


def _from_numpy_form(value: Any) -> Any:
    if isinstance(value, dict) and value.keys() == {NUMPY_KEY}:
        return value[NUMPY_KEY].numpy()
    return value
