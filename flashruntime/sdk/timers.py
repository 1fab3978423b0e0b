"""What is to happen later, for a loop that waits for messages in between."""

import heapq
from collections.abc import Callable

from flashruntime.clock import Clock

# More than any run lasts, and less than what locks can wait for.
MOST_S = 1e9


class Timers:
    """Actions by the moment at which they are due; used from one thread."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._heap: list[tuple[int, int, Callable[[], None]]] = []
        self._count = 0

    def after(self, delay_s: float, action: Callable[[], None]) -> None:
        """Let `action` be called by `fire` once `delay_s` (at most MOST_S) have passed."""
        self._count += 1
        due_ns = self._clock.monotonic_ns() + round(min(delay_s, MOST_S) * 1e9)
        heapq.heappush(self._heap, (due_ns, self._count, action))

    def next_in_s(self) -> float | None:
        """Return the seconds until the next action is due, None if there is none."""
        if not self._heap:
            return None
        return max(0.0, (self._heap[0][0] - self._clock.monotonic_ns()) / 1e9)

    def fire(self) -> None:
        """Call every action that is due."""
        now_ns = self._clock.monotonic_ns()
        while self._heap and self._heap[0][0] <= now_ns:
            heapq.heappop(self._heap)[2]()
