"""What ranks tell one another in a checkpoint call: errors, notice, the step, their own state."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TypeVar

from flashruntime.attempt import Attempt
from flashruntime.checkpoint.files import Buffer
from flashruntime.errors import CheckpointError
from flashruntime.torch import shared
from flashruntime.torch.pace import Pace
from flashruntime.torch.ranks import Ranks
from flashruntime.torch.state import Staged

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Told:
    """What all ranks know after a vote: whether any was given notice, or wants to save."""

    notice: bool
    wanted: bool
    longest_bytes: int = 0


@dataclass(slots=True)
class Agreement:
    """The checkpoint calls of all ranks as one; every method is for each rank to call."""

    ranks: Ranks
    attempt: Attempt
    _pace: Pace = field(default_factory=Pace)

    def due(self) -> bool:
        """Return whether the ranks agree in this call although nothing is to be saved in it."""
        return self.ranks.size == 1 or self._pace.due()

    def reach(self, step: int, wanted: bool) -> Told:
        """Tell whether this rank wants to save; raise what went wrong on any of them."""
        _, error = self._attempted(self.attempt.surface)
        return self._vote(step, error, wanted=wanted)

    def gather(
        self, step: int, stage: Callable[[], Staged]
    ) -> tuple[Staged, bool, dict[str, Buffer]]:
        """Let each rank copy its state; return that of this rank, and whether any has notice.

        On rank 0 the parts with the other ranks' own state come with it.
        """
        packed = b""

        def copy() -> Staged:
            nonlocal packed
            staged = stage()
            if not self.ranks.is_main:
                packed = shared.pack(staged())
            return staged

        staged, error = self._attempted(copy)
        told = self._vote(step, error, packed_bytes=len(packed))
        assert staged is not None  # noqa: S101 (for the type checker)
        if self.ranks.size == 1:
            return staged, told.notice, {}
        others = shared.parts_of_ranks(self.ranks.collect(packed, told.longest_bytes))
        return staged, told.notice, others

    def _attempted(self, action: Callable[[], T]) -> tuple[T | None, Exception | None]:
        """Return what came of `action`; alone, an error is raised at once."""
        if self.ranks.size == 1:
            return action(), None
        try:
            return action(), None
        except Exception as error:  # noqa: BLE001 (the boundary between processes)
            return None, error

    def _vote(
        self, step: int, error: Exception | None, *, wanted: bool = False, packed_bytes: int = 0
    ) -> Told:
        notice = self.attempt.notice.is_set()
        if self.ranks.size == 1:
            return Told(notice, wanted)
        own = [error is not None, notice, wanted, step, -step, packed_bytes, self._pace.call_us()]
        highest = self.ranks.highest([int(number) for number in own])
        self._pace.agreed(highest.pop())
        failed, noticed, wish, last, first, longest_bytes = highest
        if failed:
            self.ranks.fail(error)
        if last != -first:
            raise CheckpointError(
                f"the ranks came to checkpoint with different steps, {-first} to {last}; call it "
                "on every rank, with the same step and the same `every`"
            )
        return Told(bool(noticed), bool(wish), longest_bytes)
