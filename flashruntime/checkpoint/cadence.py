"""How often to save: the interval that loses least, from measured cost and failure rate.

J. W. Young, "A first order approximation to the optimum checkpoint interval", CACM 17 (1974);
J. T. Daly, "A higher order estimate of the optimum checkpoint interval for restart dumps", FGCS 22
(2006), equation 37.
"""

import math

DEFAULT_MTBF_S = 4 * 3600.0
_NEWEST_WEIGHT = 0.3


def optimum_s(cost_s: float, mtbf_s: float) -> float:
    """Return the seconds of work between two saves: Daly's estimate of the optimum.

    `cost_s` is what one save costs the training, `mtbf_s` the mean time between failures.
    """
    if cost_s >= 2 * mtbf_s:
        return mtbf_s
    ratio = cost_s / (2 * mtbf_s)
    series = 1 + math.sqrt(ratio) / 3 + ratio / 9
    return math.sqrt(2 * cost_s * mtbf_s) * series - cost_s


def mtbf_s(prior_s: float, elapsed_s: float, failures: int) -> float:
    """Return the mean time between failures: the prior counts as one failure in `prior_s`."""
    return (prior_s + max(0.0, elapsed_s)) / (1 + failures)


class Cadence:
    """Decides at each step whether a save is due; times are seconds of one monotonic clock.

    What a save costs is what the training loses: the stall of the call, and by how much steps take
    longer than usual while the save goes on behind them. The first save is due at the first step:
    it measures. `failures` are those of the job before `began_s`, in `elapsed_s`.
    """

    def __init__(
        self, began_s: float, *, prior_s: float, elapsed_s: float = 0.0, failures: int = 0
    ) -> None:
        self._began_s = began_s
        self._prior_s = prior_s
        self._elapsed_s = elapsed_s
        self._failures = failures
        self._stall_s: float | None = None
        self._slowed_s: float | None = None
        self._behind_s = 0.0
        self._step_s: float | None = None
        self._saves = 0
        self._last_step_s: float | None = None
        self._last_save_s = began_s

    def step(self, now_s: float, *, saving: bool) -> None:
        """A step ended; `saving`: a save went on behind it."""
        if self._last_step_s is not None:
            took_s = now_s - self._last_step_s
            if not saving:
                self._step_s = _mean(self._step_s, took_s)
            elif self._step_s is not None:
                self._behind_s += max(0.0, took_s - self._step_s)
        self._last_step_s = now_s

    def is_due(self, now_s: float) -> bool:
        """Return whether this step is nearer to the moment of the next save than the next one."""
        if self._saves == 0:
            return True
        half_step_s = (self._step_s or 0.0) / 2
        return now_s - self._last_save_s + half_step_s >= self.interval_s(now_s)

    def interval_s(self, now_s: float) -> float:
        """Return the seconds between saves that lose least, as far as is known now."""
        elapsed_s = self._elapsed_s + now_s - self._began_s
        slowed_s = self._behind_s if self._slowed_s is None else self._slowed_s
        cost_s = (self._stall_s or 0.0) + slowed_s
        return optimum_s(cost_s, mtbf_s(self._prior_s, elapsed_s, self._failures))

    def saved(self, now_s: float, stall_s: float) -> None:
        """A save was handed over at `now_s`, after it had held the training up for `stall_s`.

        The first one touches fresh memory: from the second on its cost is forgotten.
        """
        self._saves += 1
        self._stall_s = stall_s if self._saves <= 2 else _mean(self._stall_s, stall_s)
        if self._saves > 1:
            self._slowed_s = _mean(self._slowed_s, self._behind_s)
        self._behind_s = 0.0
        self._last_save_s = self._last_step_s = now_s


def _mean(before: float | None, newest: float) -> float:
    return newest if before is None else before + _NEWEST_WEIGHT * (newest - before)
