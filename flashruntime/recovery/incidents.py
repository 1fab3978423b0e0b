"""The same failure at many places at once: it is the surroundings, and retries only feed it."""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

from flashruntime.protocol.failures import (
    Decision,
    Evidence,
    FailureClass,
    History,
    Incident,
)
from flashruntime.recovery.classify import classify
from flashruntime.recovery.policy import decide

NS_PER_S = 1_000_000_000
MAX_REMEMBERED = 10_000
# What surroundings can do to many tasks at once. Left out are memory, of which tasks that are alike
# run out alike, preemptions, which take many as a pool shrinks, and lost nodes, whose tasks are
# taken over by a node that is there.
SHARED = frozenset({
    FailureClass.WORKER_CRASH, FailureClass.ACCELERATOR_FAILURE,
    FailureClass.COMMUNICATION_ERROR, FailureClass.NETWORK_DEGRADATION,
    FailureClass.STORAGE_TIMEOUT, FailureClass.CONTROL_PLANE_FAILURE,
})  # fmt: skip


@dataclass(frozen=True, slots=True)
class Bounds:
    """From how many tasks and nodes within `window_s` on a failure is an incident.

    The first freeze takes `freeze_s`, each that follows within its double twice as long.
    """

    tasks: int = 8
    nodes: int = 2
    window_s: float = 30.0
    freeze_s: float = 15.0
    longest_s: float = 300.0


class Judge:
    """Decides with a memory of what failed elsewhere just before; used from one thread."""

    def __init__(self, monotonic_ns: Callable[[], int], bounds: Bounds | None = None) -> None:
        self._now_ns = monotonic_ns
        self._bounds = bounds or Bounds()
        self._seen: dict[FailureClass, deque[tuple[int, str, str]]] = {}
        self._frozen: dict[FailureClass, tuple[int, int]] = {}
        self._kept: dict[FailureClass, tuple[int, int]] = {}

    def keep(self) -> None:
        """Say that the decisions so far are on record."""
        self._kept = dict(self._frozen)

    def lose(self) -> None:
        """Forget the freezes that began in decisions which never came on record.

        The failures did happen, and count: that each is told of again changes nothing.
        """
        self._frozen = dict(self._kept)

    def decide(self, evidence: Evidence, history: History, task: str, node: str) -> Decision:
        """Return the decision about a failure of `task` on `node`, now."""
        incident = self._incident(classify(evidence)[0], task, node)
        return decide(evidence, history.model_copy(update={"incident": incident}))

    def _incident(self, kind: FailureClass, task: str, node: str) -> Incident | None:
        if kind not in SHARED:
            return None
        now_ns, bounds = self._now_ns(), self._bounds
        seen = self._seen.setdefault(kind, deque(maxlen=MAX_REMEMBERED))
        seen.append((now_ns, task, node))
        while seen[0][0] < now_ns - bounds.window_s * NS_PER_S:
            seen.popleft()
        until_ns, length_ns = self._frozen.get(kind, (0, 0))
        tasks, nodes = len({each[1] for each in seen}), len({each[2] for each in seen})
        began = until_ns <= now_ns
        if began:
            if tasks < bounds.tasks or nodes < bounds.nodes:
                return None
            again = length_ns and now_ns - until_ns <= 2 * length_ns
            longest_ns = round(bounds.longest_s * NS_PER_S)
            first_ns = round(bounds.freeze_s * NS_PER_S)
            length_ns = min(longest_ns, 2 * length_ns) if again else first_ns
            until_ns = now_ns + length_ns
            self._frozen[kind] = until_ns, length_ns
        return Incident(
            failure_class=kind,
            tasks=tasks,
            nodes=nodes,
            window_s=bounds.window_s,
            frozen_s=(until_ns - now_ns) / NS_PER_S,
            began=began,
        )
