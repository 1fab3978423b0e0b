"""States as they travel to a judge: `states.json`, and each content once, in `blobs/`."""

import hashlib
import io
import json
import tarfile
from collections.abc import Iterable, Sequence
from itertools import zip_longest
from typing import TypeVar

from chaos.powerloss.disk import bytes_of
from chaos.powerloss.operations import Tree
from chaos.powerloss.states import CrashState

FOLDER = "bundle"
T = TypeVar("T")


def chosen(states: Sequence[CrashState], limit: int | None, seed: int) -> list[CrashState]:
    """Return `limit` of the states (None: all), in turns from every prefix, both in seeded order.

    What is chosen follows from the places of the states, not from their bytes, which differ from
    one recording of the same save to the next.
    """
    if limit is None or limit >= len(states):
        return list(states)
    prefixes: dict[int, list[CrashState]] = {}
    for state in states:
        prefixes.setdefault(state.after, []).append(state)
    drawn = {after: _shuffled(found, f"{seed} {after}") for after, found in prefixes.items()}
    order = _shuffled(list(drawn), f"{seed}")
    turns = zip_longest(*(drawn[after] for after in order))
    picked = [state for turn in turns for state in turn if state is not None][:limit]
    return sorted(picked, key=lambda state: state.after)


def _shuffled(values: Sequence[T], salt: str) -> list[T]:
    places = range(len(values))
    order = sorted(places, key=lambda place: hashlib.sha256(f"{salt} {place}".encode()).digest())
    return [values[place] for place in order]


def packed(states: Sequence[CrashState], owner: int) -> bytes:
    """Return a tar archive of a bundle whose files belong to the user `owner`."""
    listing = [
        {"index": index, "tree": {path: found and found.sha256 for path, found in sorted(
            state.image.items())}} for index, state in enumerate(states)
    ]  # fmt: skip
    contents = (found for state in states for found in state.image.values() if found is not None)
    blobs = {found.sha256: found for found in contents}
    files = {f"{FOLDER}/states.json": json.dumps(listing).encode()}
    files |= {f"{FOLDER}/blobs/{sha256}": found.data for sha256, found in blobs.items()}
    return archive({FOLDER: None, f"{FOLDER}/blobs": None, **files}, owner)


def volume(state: CrashState, root: str, owner: int) -> bytes:
    """Return a tar archive of one state's volume, below the directory `root`."""
    below = {f"{root}/{path}": data for path, data in bytes_of(state.image).items()}
    return archive({root: None, **below}, owner)


def archive(tree: Tree, owner: int) -> bytes:
    """Return a tar archive of a tree, the same bytes for the same tree."""
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w") as tar:
        for path, data in sorted(tree.items()):
            info = tarfile.TarInfo(path)
            info.uid = info.gid = owner
            info.mode = 0o755 if data is None else 0o644
            info.type = tarfile.DIRTYPE if data is None else tarfile.REGTYPE
            info.size = len(data or b"")
            tar.addfile(info, io.BytesIO(data or b""))
    return stream.getvalue()


def unpacked(data: Iterable[bytes], folder: str) -> Tree:
    """Return the tree in a tar archive, below its top directory `folder`.

    Links and devices are left out: no save makes any.
    """
    found: dict[str, bytes | None] = {}
    with tarfile.open(fileobj=io.BytesIO(b"".join(data))) as tar:
        for member in tar:
            path = member.name.removeprefix(folder).strip("/")
            if path and member.isdir():
                found[path] = None
            elif path and member.isreg():
                stream = tar.extractfile(member)
                found[path] = stream.read() if stream else b""
    return found
