"""The scene of one fault: what it may see, touch and promise, and whom its symbol stands for."""

import threading
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, replace

from chaos.floor import TAKES, Floor
from chaos.history import HistoryWriter
from chaos.journal import Journal, undo_all
from chaos.model import (
    Action,
    ChaosError,
    Container,
    JsonMap,
    NoTarget,
    NotOurs,
    Observation,
    Target,
    Undo,
)
from chaos.observe import Observer
from chaos.ports import World
from chaos.symbols import ALONE, KNOWN, TARGET_OF, worker_in
from chaos.triggers import view_of

OF_A_TASK = ("task of ", "checkpoints of ", "artifacts of ")


class Stopped(ChaosError):
    """The run is being healed: nothing may be hurt any more."""


@dataclass(frozen=True, slots=True)
class Records:
    """Where a run writes: what happened, and what must be undone; `stop` ends every fault.

    `floor` is what must stay, `seed` decides what triggers leave to chance, `numbers` counts the
    undos of each fault.
    """

    run_id: str
    history: HistoryWriter
    journal: Journal
    carry_out: Callable[[Undo], None]
    stop: threading.Event = field(default_factory=threading.Event)
    floor: Floor = field(default_factory=Floor)
    seed: int = 0
    numbers: Counter[str] = field(default_factory=Counter)


class Stage:
    """The scene of one fault."""

    def __init__(
        self,
        action: Action,
        world: World,
        observer: Observer,
        records: Records,
        earlier: Mapping[str, Target],
    ) -> None:
        self._action = action
        self._earlier = earlier
        self.resolved: Target | None = None
        self._world = world
        self._observer = observer
        self._records = records
        self._promised: list[Undo] = []
        self._promised_for: Target | None = None

    @property
    def action(self) -> Action:
        """The scheduled fault."""
        return self._action

    @property
    def world(self) -> World:
        """What may be touched; raise Stopped once nothing may."""
        self._go_on()
        return self._world

    def target(self) -> Target:
        """Resolve the symbolic target now; raise NoTarget or NotOurs."""
        symbol = self._action.target
        if symbol.startswith(TARGET_OF):
            self.resolved = _earlier_target(symbol, self._earlier)
        else:
            seen, run_id = self.observation(), self._records.run_id
            self.resolved = resolve(symbol, seen, self._world, run_id)
        return self._covered(self.resolved)

    def _covered(self, target: Target) -> Target:
        """Refuse a target that moved on after the undo was promised: nothing would put it right."""
        before = self._promised_for
        if before is not None and before.container != target.container:
            raise NoTarget(
                f"{target.symbol} moved on between promise and fault: "
                f"{_service(target)} is not {_service(before)}; it is not touched"
            )
        return target

    def observation(self) -> Observation:
        """Return the newest observation."""
        return self._observer.seen

    def wait(self, condition: Callable[[Observation], bool], timeout_s: float) -> bool:
        """Wait for an observation, at most until the fault's deadline; raise Stopped."""
        stop = self._records.stop
        timeout_s = min(timeout_s, self.remaining_s())
        found = self._observer.wait(lambda seen: stop.is_set() or condition(seen), timeout_s)
        self._go_on()
        return found

    def _go_on(self) -> None:
        if self._records.stop.is_set():
            raise Stopped("the run is being healed")

    def remaining_s(self) -> float:
        """Return the seconds left until the fault's deadline, never below 0."""
        return max(0.0, self._action.deadline_s - self._observer.elapsed_s())

    def promise(self, action: str, args: JsonMap) -> None:
        """Put an undo on disk; raise NoTarget where it would leave fewer workers than the floor."""
        self._go_on()
        fault_id = self._action.fault_id
        if action in TAKES:
            refused = self._records.floor.take(fault_id, str(args.get("service")), self._is_up)
            if refused is not None:
                raise NoTarget(refused)
        undo_id = f"{fault_id}/{self._records.numbers[fault_id]}"
        self._records.numbers[fault_id] += 1
        undo = Undo(undo_id, self._records.run_id, fault_id, action, args)
        self._records.journal.promise(undo)
        self._promised.append(undo)
        self._promised_for = self.resolved
        self._records.history.append("undo", {"state": "promised", **asdict(undo)})

    def _is_up(self, service: str) -> bool:
        try:
            found = self._world.containers.of_node(service)
            state = self._world.processes.state(_ours(found, service, self._records.run_id))
        except NoTarget:
            return False
        return state.running and not state.paused

    def undo_now(self) -> None:
        """Carry out this fault's undos; raise ChaosError naming those that failed."""
        self._go_on()
        failures = undo_all(tuple(reversed(self._promised)), self._records.carry_out, self._undone)
        self._promised_for = None
        self._records.floor.release(self._action.fault_id)
        if failures:
            raise ChaosError("; ".join(failures))

    def note(self, text: str, data: JsonMap) -> None:
        """Write a note to the history."""
        fault_id = self._action.fault_id
        self._records.history.append("note", {"text": text, "fault_id": fault_id, **data})

    def _undone(self, undo: Undo) -> None:
        self._records.history.append("undo", {"state": "early", **asdict(undo)})


def resolve(symbol: str, seen: Observation, world: World, run_id: str) -> Target:
    """Return what a symbolic target stands for now.

    Raise NoTarget where nothing matches, NotOurs where the container is not of this run.
    """
    if symbol == "coordinator":
        return Target(symbol, container=_ours(world.containers.coordinator(), symbol, run_id))
    if symbol == "toxiproxy":
        return Target(symbol, container=_ours(world.containers.proxy(), symbol, run_id))
    if worker_in(symbol) is not None:
        view = view_of(symbol, seen)
        if view is None:
            raise NoTarget(f"{symbol} holds nothing now")
        return replace(resolve(f"holder of {view.role}", seen, world, run_id), symbol=symbol)
    if symbol.startswith(OF_A_TASK):
        return _task_target(symbol, role_in(symbol), seen)
    if not symbol.startswith("holder of "):
        raise NoTarget(f"{symbol!r} is no target; use {KNOWN}")
    held = _task_target(symbol, role_in(symbol), seen)
    if held.node_id is None:
        raise NoTarget(f"{symbol}: nobody holds the lease now")
    container = _ours(world.containers.of_node(held.node_id), symbol, run_id)
    return replace(held, container=container, listener=world.network.listener_of(container))


def role_in(symbol: str) -> str:
    """Return the role that a symbol names."""
    return symbol.partition(" of ")[2]


def resolvable(symbol: str, seen: Observation) -> bool:
    """Whether what the symbol speaks of is there: the task, and for a holder its lease."""
    if symbol in ALONE or symbol.startswith(TARGET_OF):
        return True
    if worker_in(symbol) is not None:
        return view_of(symbol, seen) is not None
    job = seen.jobs.get(role_in(symbol))
    if job is None or job.task is None:
        return not symbol.startswith(("holder of ", *OF_A_TASK))
    return not symbol.startswith("holder of ") or seen.holder(role_in(symbol)) is not None


def _service(target: Target) -> str:
    return target.container.service if target.container else "no container"


def _earlier_target(symbol: str, earlier: Mapping[str, Target]) -> Target:
    found = earlier.get(symbol.removeprefix(TARGET_OF))
    if found is None:
        raise NoTarget(f"{symbol}: that fault has not hit anything")
    return replace(found, symbol=symbol)


def _ours(container: Container, symbol: str, run_id: str) -> Container:
    if container.run_id != run_id:
        raise NotOurs(
            f"{symbol}: container {container.container_id[:12]} carries the run label "
            f"{container.run_id!r}, not {run_id!r}; it is not touched"
        )
    return container


def _task_target(symbol: str, role: str, seen: Observation) -> Target:
    job = seen.jobs.get(role)
    if job is None or job.task is None:
        raise NoTarget(f"{symbol}: no task of role {role!r} has been seen")
    held = seen.holder(role) is not None
    return Target(
        symbol,
        node_id=job.task.node_id if held else None,
        job_id=job.job_id,
        task_id=job.task.task_id,
        lease_id=job.task.lease_id if held else None,
        attempt_number=job.task.attempts if held else None,
    )
