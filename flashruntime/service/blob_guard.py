"""What blobs are being written, read or removed, and how many bytes there are; thread-safe.

An upload pins its digest from before its bytes are in place until a row names them. Blobs are
taken away on the ledger's thread, in the call that finds that no row names them, and not while
they are pinned: so no row can come between, and no upload loses what it has put in place.
"""

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Condition

from flashruntime.errors import StoreFull


class BlobGuard:
    """Pins, the space in use and the transfers under way of one store."""

    def __init__(self, max_bytes: int = 0) -> None:
        self.max_bytes = max_bytes
        self.used_bytes = 0
        self.mutex = Condition()
        self._measured: set[str] = set()
        self._arriving_bytes = 0
        self._pins: Counter[str] = Counter()
        self._transfers = 0

    def pin(self, sha256: str) -> None:
        """Keep a blob, or one that is about to be there, from being removed; `unpin` ends it."""
        with self.mutex:
            self._pins[sha256] += 1

    def unpin(self, sha256: str) -> None:
        """End a pin."""
        with self.mutex:
            self._pins[sha256] -= 1
            if self._pins[sha256] <= 0:
                del self._pins[sha256]

    def take(self, sha256: str, remove: Callable[[], int]) -> bool:
        """Call `remove`, which returns the bytes freed, unless the blob is pinned."""
        with self.mutex:
            if sha256 in self._pins:
                return False
            self._changed(sha256, -remove())
            return True

    def replace(self, sha256: str, change: Callable[[], int]) -> None:
        """Call `change`, which puts a blob in place or takes it away; it returns the growth."""
        with self.mutex:
            self._changed(sha256, change())

    def measure(self, shard: str, look: Callable[[], int]) -> None:
        """Count a shard's bytes by `look`, if they are not counted yet."""
        with self.mutex:
            if shard not in self._measured:
                self.used_bytes += look()
                self._measured.add(shard)

    def _changed(self, sha256: str, growth_bytes: int) -> None:
        if sha256[:2] in self._measured:
            self.used_bytes += growth_bytes

    def arrive(self, size_bytes: int, *, announced: bool = False) -> None:
        """Count bytes of an upload; raise StoreFull if the store has no room for them.

        What is only `announced` is checked and not counted.
        """
        with self.mutex:
            total = self.used_bytes + self._arriving_bytes + size_bytes
            if 0 < self.max_bytes < total:
                raise StoreFull(
                    f"the store holds {self.used_bytes} bytes and may hold {self.max_bytes}, these "
                    "do not fit; delete jobs, or raise FLASHML_MAX_STORE_BYTES on the coordinator"
                )
            self._arriving_bytes += 0 if announced else size_bytes

    def arrived(self, size_bytes: int) -> None:
        """Forget bytes of an upload that is over."""
        with self.mutex:
            self._arriving_bytes -= size_bytes

    @contextmanager
    def transfer(self) -> Iterator[None]:
        """Tell work that can wait about traffic while the block runs."""
        with self.mutex:
            self._transfers += 1
        try:
            yield
        finally:
            with self.mutex:
                self._transfers -= 1
                self.mutex.notify_all()

    def wait_for_quiet(self, timeout_s: float) -> bool:
        """Wait until no transfer is under way, for `timeout_s` at most."""
        with self.mutex:
            return self.mutex.wait_for(lambda: self._transfers == 0, timeout_s)
