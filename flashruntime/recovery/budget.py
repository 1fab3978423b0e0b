"""What a task may still spend: errors of its own, and attempts lost without its fault.

Progress, a checkpoint beyond every earlier one, renews both. Without progress the same failure
again and again is a crash loop, whatever the budget.
"""

from dataclasses import dataclass, replace

from flashruntime.protocol.failures import Decision

MAX_LOSS_RUN = 100
MAX_SAME_RUN = 8


@dataclass(frozen=True, slots=True)
class Budget:
    """How a task's attempts have ended so far; `best_step` is its furthest checkpoint."""

    errors: int = 0
    loss_run: int = 0
    same_run: int = 0
    best_step: int = -1
    last_failure: str | None = None

    def reached(self, checkpoint_step: int | None) -> "Budget":
        """Return the budget after an attempt whose last checkpoint is `checkpoint_step`."""
        if checkpoint_step is None or checkpoint_step <= self.best_step:
            return self
        return Budget(best_step=checkpoint_step)

    def repeated(self, failure: str | None, *, at_known_step: bool) -> bool:
        """Return whether `failure` is the previous one again, so that a retry would not help.

        At a known step twice is enough; without one, it takes MAX_SAME_RUN times.
        """
        if failure is None or failure != self.last_failure:
            return False
        return at_known_step or self.same_run + 1 >= MAX_SAME_RUN

    def spend(self, decision: Decision, failure: str | None) -> "Budget":
        """Return the budget after a failure and the decision about it."""
        same = failure is not None and failure == self.last_failure
        counted = decision.counts_as_error
        return replace(
            self,
            errors=self.errors + counted,
            loss_run=0 if counted else self.loss_run + 1,
            same_run=self.same_run + 1 if same else 1,
            last_failure=failure or self.last_failure,
        )
