"""The ordered indexes of a ledger in memory."""

from bisect import bisect_left, insort


class Sorted:
    """An ordered set of tuples."""

    def __init__(self) -> None:
        self.items: list[tuple[int | str, ...]] = []

    def add(self, item: tuple[int | str, ...]) -> None:
        """Insert an item."""
        insort(self.items, item)

    def discard(self, item: tuple[int | str, ...]) -> None:
        """Remove an item, if it is there."""
        at = bisect_left(self.items, item)
        if at < len(self.items) and self.items[at] == item:
            del self.items[at]
