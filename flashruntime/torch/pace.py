"""How often the ranks agree on what only one of them may know: notice of the end, a failed save.

An agreement costs each of them a few hundred microseconds, so that short steps share one: about
four in a second, and at least every 50th call. Each rank counts the same way, because all count on
the slowest one's time.
"""

import time
from dataclasses import dataclass, field

INTERVAL_US = 250_000
MAX_CALLS = 50


@dataclass(slots=True)
class Pace:
    """Counts the calls down to the next agreement; the first call is one."""

    _left: int = 1
    _calls: int = 0
    _since_ns: int = field(default_factory=time.monotonic_ns)

    def due(self) -> bool:
        """Count a call; return whether the ranks agree in it."""
        self._left -= 1
        self._calls += 1
        return self._left <= 0

    def call_us(self) -> int:
        """Return how long a call and the step before it took on average since the last time."""
        return (time.monotonic_ns() - self._since_ns) // (1000 * max(1, self._calls))

    def agreed(self, slowest_us: int) -> None:
        """An agreement was reached; `slowest_us` is the highest `call_us` of all ranks."""
        self._left = min(MAX_CALLS, max(1, INTERVAL_US // max(1, slowest_us)))
        self._calls, self._since_ns = 0, time.monotonic_ns()
