"""Small objects on their way to disk: the ledger's own fsync makes them durable at once.

Each has its file before it is spooled; what is spooled still after a crash of the machine is
written anew.
"""

from flashruntime.leases.ledger import Ledger
from flashruntime.leases.store_spool import Spooled


class Spool(Ledger):
    """Bytes that are in the ledger until their files are on disk."""

    def spool(self, sha256: str, data: bytes) -> None:
        """Keep the bytes of an object whose file may not be on disk yet."""
        with self._store.transaction() as tx:
            tx.spool(sha256, data)

    def spooled(self, after: int, limit: int) -> list[Spooled]:
        """Return what is kept, numbered above `after`, in that order."""
        with self._store.transaction() as tx:
            return tx.spooled(after, limit)

    def spooled_bytes(self, number: int) -> bytes | None:
        """Return bytes that are kept."""
        with self._store.transaction() as tx:
            return tx.spooled_bytes(number)

    def unspool(self, last: int) -> None:
        """Drop what is numbered up to `last`: its files are on disk."""
        with self._store.transaction() as tx:
            tx.unspool(last)
