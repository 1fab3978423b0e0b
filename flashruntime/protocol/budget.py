"""What a task may still spend: errors of its own, and attempts lost without its fault.

Progress, a checkpoint beyond every earlier one, renews both. Without progress the same failure
again and again is a crash loop, whatever the budget.
"""

import re
import signal
from dataclasses import dataclass, replace

from flashruntime.protocol.failures import Decision, EndedBy, Evidence

MAX_LOSS_RUN = 100
MAX_SAME_RUN = 8
_VARYING = re.compile(r"0x[0-9a-fA-F]+|\d+")
_FROM_OUTSIDE = {signal.SIGKILL, signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT}
_MAX_MESSAGE = 512


def fingerprint(evidence: Evidence, step: int | None) -> str | None:
    """Return a text that two occurrences of one deterministic failure share, None if there is none.

    Only what the process did by itself counts; numbers in messages are ignored.
    """
    if evidence.ended_by not in {EndedBy.EXIT, EndedBy.SIGNAL}:
        return None
    if evidence.signal in _FROM_OUTSIDE:
        return None
    message = _VARYING.sub("#", (evidence.message or "")[:_MAX_MESSAGE])
    at = "?" if step is None else step
    parts = (evidence.exit_code, evidence.signal, evidence.error_type, message, at)
    return "|".join(str(part) for part in parts)


@dataclass(frozen=True, slots=True)
class Budget:
    """How a task's attempts have ended so far; `best_step` is its furthest checkpoint.

    `loss_run` counts attempts lost in a row, `same_run` equal failures in a row.
    """

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

    def repeats(self, failure: str | None) -> bool:
        """Return whether `failure` is the previous one again, so that a retry would not help.

        At a known step twice is enough; without one, it takes MAX_SAME_RUN times.
        """
        if failure is None or failure != self.last_failure:
            return False
        return not failure.endswith("|?") or self.same_run + 1 >= MAX_SAME_RUN

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

    def lose(self, step: int | None) -> "Budget":
        """Return the budget after an attempt of which nothing was heard any more.

        A step beyond every earlier one starts a new run of losses.
        """
        reached = -1 if step is None else step
        run = 1 if reached > self.best_step else self.loss_run + 1
        return replace(self, loss_run=run, best_step=max(reached, self.best_step))
