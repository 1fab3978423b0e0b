"""The rows that were kept last, bounded in number."""

from typing import TypeVar

V = TypeVar("V")


class Kept(dict[str, V]):
    """A dictionary that drops the oldest entry beyond `limit`."""

    def __init__(self, limit: int) -> None:
        super().__init__()
        self._limit = limit

    def keep(self, key: str, value: V) -> V:
        """Set an entry, make it the newest, and return its value."""
        self.pop(key, None)
        self[key] = value
        if len(self) > self._limit:
            del self[next(iter(self))]
        return value
