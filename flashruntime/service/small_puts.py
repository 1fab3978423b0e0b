"""Small objects in one step: the ledger's fsync makes row and bytes durable together.

The file is in place at once, and reaches the disk with many others a little later.
"""

import hashlib

from flashruntime.leases.manager import LeaseManager
from flashruntime.protocol.tasks import ArtifactRecord
from flashruntime.service.blobs import BlobStore, check_digest

SMALL_BYTES = 64 * 1024
BATCH = 1_000


class SmallPuts:
    """Takes in small objects; used on the ledger's thread."""

    def __init__(self, manager: LeaseManager, blobs: BlobStore) -> None:
        self._manager = manager
        self._blobs = blobs

    def put(self, key: str, data: bytes, expected: str | None) -> ArtifactRecord:
        """Store bytes under `key`; errors as of a large object."""
        sha256 = hashlib.sha256(data).hexdigest()
        check_digest(sha256, expected, len(data))
        self._blobs.place(sha256, data)
        self._manager.spool(sha256, data)
        return self._manager.put_object(key, sha256, len(data), None)

    def restore(self) -> None:
        """Write again what had not surely reached the disk."""
        last = 0
        while spooled := self._manager.spooled(last, BATCH):
            for each in spooled:
                data = self._manager.spooled_bytes(each.number)
                if data is not None:
                    self._blobs.place(each.sha256, data)
            self._blobs.sync([each.sha256 for each in spooled])
            last = spooled[-1].number
        self._manager.unspool(last)
