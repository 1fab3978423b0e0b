"""Small objects in one step: the ledger's fsync makes row and bytes durable together.

The file is in place at once, and reaches the disk with many others a little later.
"""

import hashlib
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial

from flashruntime.leases.manager import LeaseManager
from flashruntime.protocol.tasks import ArtifactRecord
from flashruntime.service.blobs import BlobStore
from flashruntime.service.errors import BadHeader
from flashruntime.service.small_files import place, sync

SMALL_BYTES = 64 * 1024
BATCH = 1_000


@dataclass(frozen=True, slots=True)
class SmallUpload:
    """A small object that has arrived whole: `record` it in the ledger, `place` its file."""

    record: Callable[[], ArtifactRecord]
    place: Callable[[], None]


class SmallPuts:
    """Takes in small objects."""

    def __init__(self, manager: LeaseManager, blobs: BlobStore) -> None:
        self._manager = manager
        self._guard = blobs.guard
        self._root = blobs.root

    def upload(self, key: str, data: bytes, expected: str | None) -> SmallUpload:
        """Return what is to be done with bytes; BadHeader if they are not the `expected` ones."""
        sha256 = hashlib.sha256(data).hexdigest()
        if expected not in {None, sha256}:
            raise BadHeader(
                f"the {len(data)} bytes received hash to {sha256}, X-Sha256 says {expected}; "
                "send them again"
            )

        def record() -> ArtifactRecord:
            room = self._manager.admit(key)
            if room is not None:
                room.check(len(data))
            self._guard.arrive(len(data), announced=True)
            self._manager.spool(sha256, data)
            return self._manager.put_object(key, sha256, len(data), None)

        return SmallUpload(record, partial(self._place, sha256, data))

    def _place(self, sha256: str, data: bytes) -> None:
        self._guard.replace(sha256, partial(place, self._root, sha256, data))

    def sync(self, digests: Iterable[str]) -> None:
        """Return once the files of small objects are on disk; any thread may call."""
        sync(self._root, digests)

    def restore(self) -> None:
        """Write again what had not surely reached the disk."""
        last = 0
        while spooled := self._manager.spooled(last, BATCH):
            for each in spooled:
                data = self._manager.spooled_bytes(each.number)
                if data is not None:
                    self._place(each.sha256, data)
            sync(self._root, [each.sha256 for each in spooled])
            last = spooled[-1].number
        self._manager.unspool(last)
