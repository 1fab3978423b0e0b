"""Carries out a schedule: each fault in a thread of its own, from its trigger to its receipt."""

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import asdict, replace
from functools import partial
from queue import Empty, SimpleQueue

from chaos.looks import looks_of
from chaos.model import (
    Action,
    ChaosError,
    Comeback,
    JsonMap,
    JsonValue,
    Landed,
    NoTarget,
    NotOurs,
    Observation,
    Receipt,
    Target,
)
from chaos.observe import Observer
from chaos.ports import Fault, World
from chaos.schedule import describe_action
from chaos.stage import Records, Stage, resolvable
from chaos.storm import EVERY_LANE
from chaos.symbols import worker_in
from chaos.triggers import Lot, holds

RECLAIM_S = 20.0
TICK_S = 0.2
STOP_S = 5.0
SETTLE_S = 20.0
PROBE_S = 1.0
NEWER_S = 5.0
Ended = tuple[str, Receipt | BaseException]


class Disturber:
    """Carries out a schedule; every fault ends with a receipt, whatever happens to it."""

    def __init__(
        self,
        faults: Mapping[str, Fault],
        world: World,
        observer: Observer,
        records: Records,
        say: Callable[[str], None],
    ) -> None:
        self._faults = faults
        self._world = world
        self._observer = observer
        self._records = records
        self._say = say
        self._targets: dict[str, Target] = {}

    def run(
        self, schedule: Sequence[Action], meanwhile: Callable[[], object] = lambda: None
    ) -> tuple[Receipt, ...]:
        """Carry out a schedule and return its receipts; the caller's thread calls `meanwhile`.

        A fault is armed once the one that it waits for has its receipt. That thread wakes up
        often, so that it hears signals; when this raises, no fault touches anything any more.
        """
        ended: SimpleQueue[Ended] = SimpleQueue()
        waiting, running = list(schedule), dict[str, threading.Thread]()
        receipts: dict[str, Receipt] = {}
        try:
            while waiting or running:
                meanwhile()
                for action in [each for each in waiting if self._due(each, schedule, receipts)]:
                    waiting.remove(action)
                    running[action.fault_id] = self._start(action, ended)
                with suppress(Empty):
                    fault_id, result = ended.get(timeout=TICK_S)
                    del running[fault_id]
                    if isinstance(result, BaseException):
                        raise result
                    receipts[fault_id] = result
                    self._say(f"{fault_id}: {result.landed}")
        finally:
            self._records.stop.set()
            for thread in running.values():
                thread.join(STOP_S)
        return tuple(receipts[action.fault_id] for action in schedule)

    def _due(self, action: Action, schedule: Sequence[Action], over: Mapping[str, Receipt]) -> bool:
        """Whether the fault that it waits for has its receipt, and its lanes are free."""
        after = action.trigger.after
        if after is not None and after not in self._observer.seen.receipts:
            return False
        before = schedule[: schedule.index(action)]
        return all(each.fault_id in over for each in before if share_a_lane(each, action))

    def _start(self, action: Action, ended: SimpleQueue[Ended]) -> threading.Thread:
        def carry_out() -> None:
            try:
                ended.put((action.fault_id, self.carry_out(action)))
            except BaseException as error:  # noqa: BLE001 (thread boundary: `run` raises it)
                ended.put((action.fault_id, error))

        self._say(f"waiting to fire {action.fault_id} at {action.target}")
        thread = threading.Thread(target=carry_out, name=f"fault-{action.fault_id}", daemon=True)
        thread.start()
        return thread

    def carry_out(self, action: Action) -> Receipt:
        """Wait for the trigger, fire and return the receipt, which is in the history by then."""
        self._records.history.append("fault_armed", describe_action(action))
        missed: list[JsonValue] = []
        while True:
            stage = Stage(action, self._world, self._observer, self._records, self._targets)
            came, receipt = self._tried(stage)
            if not came or receipt.landed is Landed.LANDED or len(missed) + 1 >= action.tries:
                break
            missed.append({"landed": receipt.landed, "evidence": dict(receipt.evidence)})
            self._aim_again(stage, receipt)
        if missed:
            receipt = replace(receipt, evidence={**receipt.evidence, "missed_before": missed})
        data = {"fault_id": action.fault_id, "kind": action.kind, "target": action.target}
        self._records.history.append("fault_receipt", {**data, **asdict(receipt)})
        if stage.resolved is not None:
            self._targets[action.fault_id] = stage.resolved
        self._observer.receipt(action.fault_id, receipt)
        if action.comeback is not Comeback.AT_END:
            self._bring_back(stage, receipt.lost_lease_id)
        self._records.floor.release(action.fault_id)
        if EVERY_LANE in action.lanes:
            self._settle(stage)
        return receipt

    def _tried(self, stage: Stage) -> tuple[bool, Receipt]:
        """Return whether the moment to fire came, and the receipt."""
        if (reason := self._never_came(stage)) is not None:
            return False, Receipt(Landed.MISSED, {"reason": reason})
        try:
            receipt = self._fire(self._faults[stage.action.kind], stage)
        except (NoTarget, NotOurs) as error:
            receipt = Receipt(Landed.MISSED, {"reason": str(error)})
        except Exception as error:  # noqa: BLE001 (boundary: a fault that fails must not stop the healing)
            receipt = Receipt(Landed.INCONCLUSIVE, {"reason": f"{type(error).__name__}: {error}"})
        return True, self._in_time(stage, receipt) if stage.action.tries > 1 else receipt

    def _in_time(self, stage: Stage, receipt: Receipt) -> Receipt:
        """Look anew: a task that its lost holder had just ended was not hit."""
        lost = receipt.lost_lease_id
        if lost is None or receipt.evidence.get("exit_code") is None:
            return receipt
        self._look_anew(stage)
        if not stage.observation().accepted(lost):
            return receipt
        reason = f"its target had just ended the task of {lost}"
        return replace(
            receipt, landed=Landed.MISSED, evidence={**receipt.evidence, "reason": reason}
        )

    def _aim_again(self, stage: Stage, receipt: Receipt) -> None:
        """Undo what missed, and look anew."""
        fault_id = stage.action.fault_id
        self._say(f"{fault_id}: {receipt.landed}; it is aimed again")
        self._records.history.append(
            "fault_missed", {"fault_id": fault_id, "landed": receipt.landed}
        )
        self._bring_back(stage, None)
        self._look_anew(stage)

    def _look_anew(self, stage: Stage) -> None:
        """Wait for an observation that began after this moment; the next one may have before."""
        for _ in range(2):
            before_s = self._observer.seen.elapsed_s
            stage.wait(partial(_newer, before_s), NEWER_S)

    def _settle(self, stage: Stage) -> None:
        """Wait until requests are answered again: the next fault must find a way through."""
        deadline = time.monotonic() + SETTLE_S
        while time.monotonic() < deadline and not self._records.stop.is_set():
            with suppress(ChaosError):
                listeners = self._world.network.listeners()
                probes = [self._world.network.probe(name, PROBE_S) for name in listeners[:1]]
                if self._world.runtime.ready() and all(each.outcome == "ok" for each in probes):
                    return
            self._records.stop.wait(TICK_S)
        stage.note("the system did not settle", {"waited_s": SETTLE_S})

    def _bring_back(self, stage: Stage, lost: str | None) -> None:
        """Undo before the end; what fails is noted, and tried again when the run heals."""
        if lost is not None and stage.action.comeback is Comeback.RECLAIMED:
            self._observer.wait(
                lambda seen: self._records.stop.is_set() or seen.moved_on(lost), RECLAIM_S
            )
        try:
            stage.undo_now()
        except ChaosError as error:
            stage.note("its target did not come back", {"error": str(error)})

    def _fire(self, fault: Fault, stage: Stage) -> Receipt:
        for undo_action, args in fault.undo(stage):
            stage.promise(undo_action, args)
        names: JsonMap = {"fault_id": stage.action.fault_id, "kind": fault.kind}
        self._records.history.append("fault_firing", names)
        fired = fault.fire(stage)
        self._records.history.append("fault_fired", {**names, "fired": dict(fired)})
        return fault.receipt(stage, fired)

    def _never_came(self, stage: Stage) -> str | None:
        """Wait for the moment to fire; return why it never came, None where it did."""
        action = stage.action

        lot = Lot(action.fault_id, self._records.seed)

        def ready(seen: Observation) -> bool:
            return holds(action.trigger, seen, lot) and resolvable(action.target, seen)

        fired_at: list[Observation] = []

        def ready_now(seen: Observation) -> bool:
            if ready(seen):
                fired_at.append(seen)
            return bool(fired_at)

        with ExitStack() as stack:
            if action.trigger.checkpoints_at_least is not None:
                stack.enter_context(self._observer.hurried(action.trigger.role))
            stack.enter_context(self._observer.looking(looks_of(action, self._world.signs, lot)))
            stage.wait(lambda seen: ready_now(seen) or _ended(action, seen), action.deadline_s)
        if fired_at:
            return None
        seen = stage.observation()
        if _ended(action, seen):
            return f"job {action.trigger.role!r} ended before the trigger came"
        return f"the trigger did not come within {action.deadline_s:g} s"


def _newer(before_s: float, seen: Observation) -> bool:
    return seen.elapsed_s > before_s


def _ended(action: Action, seen: Observation) -> bool:
    if worker_in(action.trigger.role) is not None:
        return bool(seen.jobs) and all(job.terminal for job in seen.jobs.values())
    job = seen.jobs.get(action.trigger.role)
    return job is not None and job.terminal


def share_a_lane(one: Action, other: Action) -> bool:
    """Whether two faults must not overlap; those without lanes overlap with everything."""
    if not one.lanes or not other.lanes:
        return False
    lanes = {*one.lanes, *other.lanes}
    return EVERY_LANE in lanes or not set(one.lanes).isdisjoint(other.lanes)
