"""What faults, workloads and invariants are, and what a fault may see while it fires."""

import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Protocol

from chaos.history import History
from chaos.model import Action, JobRequest, JsonMap, Observation, Receipt, Target, Verdict
from chaos.ports.world import World


class Scene(Protocol):
    """What a fault may see and do while it fires."""

    @property
    def action(self) -> Action:
        """The scheduled fault."""
        ...

    @property
    def world(self) -> World:
        """What may be touched."""
        ...

    def target(self) -> Target:
        """Resolve the symbolic target now; raise NoTarget or NotOurs."""
        ...

    def observation(self) -> Observation:
        """Return the newest observation."""
        ...

    def wait(self, condition: Callable[[Observation], bool], timeout_s: float) -> bool:
        """Wait for an observation; never longer than the fault's own deadline allows."""
        ...

    def remaining_s(self) -> float:
        """Return the seconds left until the fault's deadline, never below 0."""
        ...

    def promise(self, action: str, args: JsonMap) -> None:
        """Put an undo on disk; call it before touching anything that `undo` did not cover."""
        ...

    def undo_now(self) -> None:
        """Carry out this fault's undos now; they are repeated, harmlessly, when healing."""
        ...

    def note(self, text: str, data: JsonMap) -> None:
        """Write a note to the history."""
        ...


class Fault(Protocol):
    """One kind of fault: `undo` is written to disk, then `fire`, then `receipt`.

    Modules in chaos.faults hold one as FAULT.
    """

    @property
    def kind(self) -> str:
        """Name of the fault, unique."""
        ...

    def undo(self, scene: Scene) -> tuple[tuple[str, JsonMap], ...]:
        """Return the undo steps as (action, args) for the target as it is now."""
        ...

    def fire(self, scene: Scene) -> JsonMap:
        """Act, and return what was done, to whom and when."""
        ...

    def receipt(self, scene: Scene, fired: JsonMap) -> Receipt:
        """Return the evidence that it landed, or that it did not."""
        ...


class Workload(Protocol):
    """The load of an experiment. Modules in chaos.workloads hold one as WORKLOAD."""

    @property
    def name(self) -> str:
        """Name of the workload, unique."""
        ...

    def jobs(self, seed: int, count: int) -> Mapping[str, JobRequest]:
        """Return role -> job, submitted in this order; `count` as in `Experiment`."""
        ...


@dataclass(frozen=True, slots=True)
class Invariant:
    """One property of a history: pure, so that a saved run can be judged again.

    `judge` returns a verdict with its reason; what it cannot decide is unknown, and so is a
    judge that crashes. Modules in chaos.invariants hold one as INVARIANT.
    """

    name: str
    judge: Callable[[History], tuple[Verdict, str]]

    @property
    def meaning(self) -> str:
        """What it states, in one sentence: the first line of its module."""
        module = sys.modules.get(self.judge.__module__)
        return ((module and module.__doc__) or "").partition("\n")[0]
