"""One checkpoint of several ranks: what all have in common, and beside it each rank's own state.

Rank 0 saves the common state together with its own, as a rank alone does. The parts of rank r stand
beside it under the same names behind `rank-0000r.`.
"""

import json
from collections.abc import Mapping
from typing import Any

from flashruntime.checkpoint.files import Buffer
from flashruntime.checkpoint.store import Resume
from flashruntime.torch.state import unpack

COMMON = ("model", "optimizer")
PREFIX = "rank-{:05d}."
LENGTH_BYTES = 8


def pack(parts: Mapping[str, Buffer]) -> bytes:
    """Return the parts of a rank as one string of bytes, to be sent to rank 0."""
    sizes = {key: memoryview(data).nbytes for key, data in parts.items()}
    header = json.dumps(sizes).encode()
    return b"".join([len(header).to_bytes(LENGTH_BYTES, "big"), header, *parts.values()])


def parts_of_ranks(packed: list[memoryview]) -> dict[str, Buffer]:
    """Return the parts that stand for the ranks after rank 0, whose own entry is passed over."""
    parts: dict[str, Buffer] = {}
    for rank, data in enumerate(packed[1:], 1):
        start = LENGTH_BYTES + int.from_bytes(data[:LENGTH_BYTES], "big")
        for key, size_bytes in json.loads(bytes(data[LENGTH_BYTES:start])).items():
            parts[PREFIX.format(rank) + key] = data[start : start + size_bytes]
            start += size_bytes
    return parts


def state_of(found: Resume, rank: int) -> dict[str, Any]:
    """Return the state that `rank` goes on from; CheckpointError where the parts hold none."""
    state = unpack(found.parts)
    if rank == 0:
        return state
    own = own_state(found, rank)
    common = {name: each for name, each in state["objects"].items() if name in COMMON}
    return {**own, "objects": {**common, **own["objects"]}}


def own_state(found: Resume, rank: int) -> dict[str, Any]:
    """Return what rank 1, 2 and so on saved of itself."""
    prefix = PREFIX.format(rank)
    return unpack(
        {key[len(prefix) :]: data for key, data in found.parts.items() if key.startswith(prefix)}
    )
