"""The twin of the census: what a test says runs."""

from collections.abc import Mapping


class FakeCensus:
    """Workers with one process each, and what `more` adds."""

    def __init__(self, workers: int) -> None:
        self.more: dict[str, tuple[str, ...]] = {}
        self._workers = tuple(f"worker-{number}" for number in range(1, workers + 1))

    def processes(self) -> Mapping[str, tuple[str, ...]]:
        """Return the agents, and what else is said to run."""
        return {name: ("flashruntime work", *self.more.get(name, ())) for name in self._workers}
