"""When the step of each running attempt last moved, as this coordinator has heard."""

MAX_REMEMBERED = 100_000


class Steps:
    """Instants by lease, of those that moved last; of others, time counts from `started_ns`."""

    def __init__(self, started_ns: int) -> None:
        self._started_ns = started_ns
        self._moved_ns: dict[str, int] = {}

    def moved(self, lease_id: str, now_ns: int) -> None:
        """Note that the step of a lease has moved."""
        self._moved_ns.pop(lease_id, None)
        self._moved_ns[lease_id] = now_ns
        while len(self._moved_ns) > MAX_REMEMBERED:
            self._moved_ns.pop(next(iter(self._moved_ns)))

    def age_ns(self, lease_id: str, now_ns: int) -> int:
        """Return the time since the step of a lease last moved."""
        return max(0, now_ns - self._moved_ns.get(lease_id, self._started_ns))
