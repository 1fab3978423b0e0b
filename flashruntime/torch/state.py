"""Training state as checkpoint parts, and back: plain values and tensors only, never code.

`index.pt` (torch.save) holds the containers, with a number in place of each tensor, and says where
in `tensors-00000.bin`, `tensors-00001.bin`, ... its bytes lie. So a save copies tensors once, into
memory that is reused, and a load uses the very bytes that were verified.
"""

import contextlib
import ctypes
import io
from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Any

import torch

from flashruntime.checkpoint.buffers import HostBuffers, at_once
from flashruntime.checkpoint.files import Buffer
from flashruntime.errors import CheckpointError, NotFinite
from flashruntime.torch import onefile
from flashruntime.torch.devices import DeviceCopies
from flashruntime.torch.finite import has_nan, watched_tensors
from flashruntime.torch.savable import NUMPY_KEY, TENSOR_KEY, Block, Parting, rebuild

PART_BYTES = 16 * 1024 * 1024
INDEX_NAME = "index.pt"
TENSORS_NAME = "tensors-{:05d}.bin"
ALIGN_BYTES = 64
FORMAT = 2

Place = tuple[int, int]


@dataclass(frozen=True, slots=True)
class Staged:
    """The copy of a state; both of its functions may run in any thread."""

    parts: Callable[[], dict[str, Buffer]]
    refuse_nan: Callable[[], None]

    def __call__(self) -> dict[str, Buffer]:
        """Return the parts of the copy, or raise NotFinite."""
        self.refuse_nan()
        return self.parts()


class Packer:
    """Turns states into parts, in buffers that are reused from one save to the next.

    A state in which a `watched` parameter of the model is NaN is refused once it is staged.
    `waited_s`: how long the last copy waited for a GPU to do what the training had queued before.
    """

    def __init__(self) -> None:
        self._buffers = HostBuffers(PART_BYTES, _pinned if torch.cuda.is_available() else at_once)
        self._pieces: list[torch.Tensor] = []
        self._streams: dict[torch.device, Any] = {}
        self._copies = DeviceCopies(self._streams)
        self.waited_s = 0.0
        self.watched: Collection[str] = ()

    def pack(self, state: dict[str, Any]) -> dict[str, Buffer]:
        """Return `state` as parts, which hold until the next call."""
        return self.stage(state)()

    def stage(self, state: dict[str, Any]) -> Staged:
        """Copy `state` as it is now.

        Tied tensors stay tied; a view takes the room of its own elements, not of its base. The
        parts hold until the next call. InvalidInput names what could not be loaded without code.
        """
        apart = Parting().part(state)
        places, size_bytes = self._copy(apart.blocks)
        content = {
            "format": FORMAT,
            "state": apart.skeleton,
            "tensors": apart.tensors,
            "places": places,
        }
        return Staged(lambda: self._parts(content, size_bytes), lambda: self._refuse_nan(content))

    def reserve(self, state: dict[str, Any]) -> None:
        """Have memory for states like `state`; what stands in the way is told by the save.

        The training may change `state` meanwhile, which it may not during a save.
        """
        with contextlib.suppress(Exception):
            blocks = Parting().part(state).blocks
            size_bytes = sum(block.size_bytes + ALIGN_BYTES for block in blocks)
            for number in range(size_bytes // PART_BYTES):
                self._buffers.piece(number)

    def _copy(self, blocks: list[Block]) -> tuple[list[Place], int]:
        """Copy the blocks one after another; return where each lies, and where the last ends."""
        places: list[Place] = []
        end = 0
        self._copies = DeviceCopies(self._streams)
        for block in blocks:
            start = -(-end // ALIGN_BYTES) * ALIGN_BYTES
            for number, within, _, count in _pieces(end, start - end):
                self._buffers.piece(number)[within : within + count] = bytes(count)
            content = block.content()
            for number, within, done, count in _pieces(start, block.size_bytes):
                self._fill(number, within, content, done, count)
            places.append((start, block.size_bytes))
            end = start + block.size_bytes
        self.waited_s = self._copies.finish()
        return places, end

    def _fill(
        self, number: int, within: int, storage: torch.UntypedStorage, start: int, count: int
    ) -> None:
        """Copy on this thread alone: a team of threads would wait for cores that others use."""
        while len(self._pieces) <= number:
            piece = self._buffers.piece(len(self._pieces))
            self._pieces.append(torch.frombuffer(piece, dtype=torch.uint8))
        target = self._pieces[number]
        if storage.device.type == "cpu":
            ctypes.memmove(target.data_ptr() + within, storage.data_ptr() + start, count)
            return
        source = torch.empty(0, dtype=torch.uint8, device=storage.device).set_(storage)
        target, source = target.narrow(0, within, count), source.narrow(0, start, count)
        if storage.device.type == "cuda":
            self._copies.copy(target, source)
        else:
            target.copy_(source)

    def _parts(self, content: dict[str, Any], size_bytes: int) -> dict[str, Buffer]:
        index = io.BytesIO()
        torch.save(content, index)
        parts: dict[str, Buffer] = {INDEX_NAME: index.getvalue()}
        for number in range(-(-size_bytes // PART_BYTES)):
            used = min(PART_BYTES, size_bytes - number * PART_BYTES)
            parts[TENSORS_NAME.format(number)] = self._buffers.piece(number)[:used]
        return parts

    def _refuse_nan(self, content: dict[str, Any]) -> None:
        watched = watched_tensors(content["state"], self.watched, TENSOR_KEY)
        for name, number in sorted(watched.items()):
            block, dtype, *_ = content["tensors"][number]
            for piece, within, _, count in _pieces(*content["places"][block]):
                if has_nan(self._buffers.piece(piece)[within : within + count], dtype):
                    raise NotFinite(
                        f"the model's parameter {name} is NaN: this state is not saved, a restart "
                        "goes on from an earlier one; where NaN belongs there, set "
                        "FLASHML_ALLOW_NAN=1"
                    )


def _pinned(size_bytes: int) -> memoryview:
    """Return memory that an accelerator copies into at full speed."""
    return memoryview(torch.empty(size_bytes, dtype=torch.uint8, pin_memory=True).numpy())


def _pieces(start: int, size_bytes: int) -> list[tuple[int, int, int, int]]:
    """Cut a range of bytes where parts end: part, offset within it, bytes done before, count."""
    number, within = divmod(start, PART_BYTES)
    if 0 < size_bytes <= PART_BYTES - within:
        return [(number, within, 0, size_bytes)]
    cuts, done = [], 0
    while done < size_bytes:
        number, within = divmod(start + done, PART_BYTES)
        count = min(PART_BYTES - within, size_bytes - done)
        cuts.append((number, within, done, count))
        done += count
    return cuts


def unpack(parts: dict[str, bytearray]) -> dict[str, Any]:
    """Return the state in the parts; CheckpointError where they hold none.

    MemoryError says nothing about the parts: a checkpoint must not be given up for it.
    """
    try:
        state = _load(parts) if INDEX_NAME in parts else _load_onefile(parts)
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
    return state


def _load_onefile(parts: dict[str, bytearray]) -> Any:
    return rebuild(onefile.load(parts), lambda value: _leaf(value, []))


def _load(parts: dict[str, bytearray]) -> Any:
    content = torch.load(io.BytesIO(parts[INDEX_NAME]), map_location="cpu", weights_only=True)
    if content["format"] != FORMAT:
        raise CheckpointError(f"has format {content['format']}; a newer flashruntime wrote it")
    blocks = [_block(parts, *place) for place in content["places"]]
    tensors = [_tensor(blocks, *each) for each in content["tensors"]]
    return rebuild(content["state"], lambda value: _leaf(value, tensors))


def _block(parts: dict[str, bytearray], start: int, size_bytes: int) -> torch.Tensor:
    """Return bytes of the parts: those in one part as they lie there, others joined."""
    if size_bytes == 0:
        return torch.empty(0, dtype=torch.uint8)
    number, within = divmod(start, PART_BYTES)
    if within + size_bytes <= PART_BYTES:
        part = parts[TENSORS_NAME.format(number)]
        return torch.frombuffer(part, dtype=torch.uint8, offset=within, count=size_bytes)
    block = torch.empty(size_bytes, dtype=torch.uint8)
    for _, _, done, count in _pieces(start, size_bytes):
        block.narrow(0, done, count).copy_(_block(parts, start + done, count))
    return block


def _tensor(  # noqa: PLR0917 (the order of a description)
    blocks: list[torch.Tensor],
    block: int,
    dtype: torch.dtype,
    size: tuple[int, ...],
    stride: tuple[int, ...],
    offset: int,
    requires_grad: bool,
    is_parameter: bool,
) -> torch.Tensor:
    storage = blocks[block].untyped_storage()
    reach = offset + sum((n - 1) * step for n, step in zip(size, stride, strict=True)) + 1
    if min(size, default=1) > 0 and reach * dtype.itemsize > storage.nbytes():
        raise CheckpointError(f"holds a tensor of {tuple(size)} that its bytes do not fill")
    tensor = torch.empty(0, dtype=dtype).set_(storage, offset, size, stride)
    if is_parameter:
        return torch.nn.Parameter(tensor, requires_grad=requires_grad)
    return tensor.requires_grad_(requires_grad)


def _leaf(value: Any, tensors: list[torch.Tensor]) -> Any:
    if isinstance(value, dict) and TENSOR_KEY in value:
        return tensors[value[TENSOR_KEY]]
    if isinstance(value, dict) and NUMPY_KEY in value:
        inner = value[NUMPY_KEY]
        return (_leaf(inner, tensors) if isinstance(inner, dict) else inner).numpy()
    return value
