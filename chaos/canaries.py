"""What the faults on a path share: canaries before, during and after, and toxics read back."""

import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

from chaos.history import integer, mapping, text
from chaos.model import (
    Action,
    Container,
    JsonMap,
    JsonValue,
    Landed,
    NoTarget,
    Observation,
    Receipt,
    Target,
)
from chaos.ports import Canary, Scene, Toxic

HOLD_MS = 500
SLACK = 0.8
LEAST_S = 0.05
"""What chance makes of a canary; no delay below it can be told from that."""
PATIENCE_S = 5.0
TRIES = 3
STREAMS = ("upstream", "downstream")
BOTH = "both"


@dataclass(frozen=True, slots=True)
class Felt:
    """The canaries of one fault."""

    before: Canary
    during: Canary
    last: Canary
    after: Canary

    def is_later(self, by_s: float) -> bool:
        """Whether the one during the fault was slower than those around it by that much."""
        around_s = max(self.before.elapsed_s, self.after.elapsed_s)
        return by_s >= LEAST_S and self.during.elapsed_s - around_s >= by_s

    def only(self, *outcomes: str) -> bool:
        """Whether every canary during the fault ended in one of these ways."""
        return {self.during.outcome, self.last.outcome} <= set(outcomes)


class OnPath(ABC):
    """Toxics on the target's own listener for a while.

    Parameters as in `wait_until`. Landed where a canary got through before and after, and those at
    the beginning and at the end felt them; missed where the task had an event `ahead_of` before.
    """

    kind: str
    patience_s: ClassVar[float] = PATIENCE_S

    @abstractmethod
    def toxics(self, action: Action) -> tuple[Toxic, ...]:
        """Return what is switched on."""

    @abstractmethod
    def is_felt(self, felt: Felt, params: JsonMap) -> bool:
        """Whether the canaries felt it."""

    def pad_bytes(self, params: JsonMap) -> int:
        """Return by how much a canary is longer than it must be."""
        del params
        return 0

    def undo(self, scene: Scene) -> tuple[tuple[str, JsonMap], ...]:
        """Remove the toxics."""
        names: list[JsonValue] = [toxic.name for toxic in self.toxics(scene.action)]
        return (("remove_toxics", {"listener": path_of(scene.target()), "names": names}),)

    def fire(self, scene: Scene) -> JsonMap:
        """Switch on, hold, switch off, with a canary at each point."""
        network, listener = scene.world.network, path_of(scene.target())
        toxics = self.toxics(scene.action)

        def on() -> JsonValue:
            for toxic in toxics:
                network.add(listener, toxic)
            return [toxic.name for toxic in network.toxics().get(listener, ())]

        def off() -> None:
            for toxic in toxics:
                network.remove(listener, toxic.name)

        pad_bytes = self.pad_bytes(scene.action.params)

        def canary(timeout_s: float) -> Canary:
            return network.canary(listener, timeout_s, pad_bytes)

        return hold(scene, (on, off), canary, self.patience_s)

    def receipt(self, scene: Scene, fired: JsonMap) -> Receipt:
        """Compare the canaries."""
        felt = felt_of(fired)
        return receipt_of(scene, fired, self.is_felt(felt, scene.action.params))


def hold(
    scene: Scene,
    switches: tuple[Callable[[], JsonValue], Callable[[], None]],
    canary: Callable[[float], Canary],
    patience_s: float = PATIENCE_S,
) -> JsonMap:
    """Switch on, hold as the parameters say, switch off; return what the canaries met.

    Those in between wait for an answer for `patience_s`, those around them longer, and are tried
    again where they are slow.
    """
    on, off = switches
    target = scene.target()
    before = undisturbed(canary)
    on_ns = time.monotonic_ns()
    read_back = on()
    during = canary(patience_s)
    met = wait_until(scene, target, on_ns)
    last = canary(patience_s)
    off()
    off_ns = time.monotonic_ns()
    return {
        **who(target),
        "listener": target.listener,
        "on_ns": on_ns,
        "off_ns": off_ns,
        "read_back": read_back,
        "met": met,
        "before": json_of(before),
        "during": json_of(during),
        "last": json_of(last),
        "after": json_of(undisturbed(canary)),
    }


def undisturbed(canary: Callable[[float], Canary]) -> Canary:
    """Return the best of a few canaries: a busy machine holds up one, hardly all of them."""
    best = canary(PATIENCE_S)
    for _ in range(TRIES - 1):
        if best.outcome == "ok" and best.elapsed_s < LEAST_S:
            break
        best = min(
            best, canary(PATIENCE_S), key=lambda each: (each.outcome != "ok", each.elapsed_s)
        )
    return best


def wait_until(scene: Scene, target: Target, since_ns: int) -> str | None:
    """Hold on for as long as the parameters say; return the type of the event that was met.

    `through_checkpoints`: first until the job of the trigger has so many. `hold_ms`: then so long.
    `until`: then until an event of this type of the target's task, at most `most_ms`.
    """
    params, role = scene.action.params, scene.action.trigger.role
    until, most_ms = text(params.get("until")), integer(params.get("most_ms"))
    saves = integer(params.get("through_checkpoints")) or 0
    scene.wait(lambda seen: _saves(seen, role) >= saves, scene.remaining_s())
    scene.wait(lambda _: False, (integer(params.get("hold_ms")) or HOLD_MS) / 1e3)
    if until is None or target.task_id is None:
        return None
    task_id = target.task_id
    most_s = scene.remaining_s() if most_ms is None else most_ms / 1e3
    return until if scene.wait(lambda seen: newer(seen, task_id, until, since_ns), most_s) else None


def _saves(seen: Observation, role: str) -> int:
    job = seen.jobs.get(role)
    return job.checkpoints if job else 0


def newer(seen: Observation, task_id: str, kind: str, since_ns: int) -> bool:
    """Whether a task has an event of this type after a moment."""
    return any((integer(e.get("mono_ns")) or 0) > since_ns for e in seen.events_of(task_id, kind))


def receipt_of(scene: Scene, fired: JsonMap, is_felt: bool) -> Receipt:
    """Return the receipt: without a way through around the fault, nothing can be said of it."""
    felt, on_ns = felt_of(fired), integer(fired["on_ns"])
    if {felt.before.outcome, felt.after.outcome} != {"ok"}:
        return Receipt(Landed.INCONCLUSIVE, fired, took_effect_ns=on_ns)
    landed = is_felt and is_ahead(scene, fired)
    return Receipt(Landed.LANDED if landed else Landed.MISSED, fired, took_effect_ns=on_ns)


def is_ahead(scene: Scene, fired: JsonMap) -> bool:
    """Whether a fault was on before the event that it was to be `ahead_of`, if any."""
    kind, task_id = text(scene.action.params.get("ahead_of")), text(fired.get("task_id"))
    if kind is None or task_id is None:
        return True
    events = scene.observation().events_of(task_id, kind)
    return all((integer(e.get("mono_ns")) or 0) > (integer(fired["on_ns"]) or 0) for e in events)


def felt_of(fired: JsonMap) -> Felt:
    """Return the canaries that `hold` wrote down."""
    return Felt(*(_canary(fired[name]) for name in ("before", "during", "last", "after")))


def streams_of(params: JsonMap, default: str) -> tuple[str, ...]:
    """Return the halves of the path that `stream` names: one of them, or both."""
    stream = text(params.get("stream")) or default
    return STREAMS if stream == BOTH else (stream,)


def path_of(target: Target) -> str:
    """Return the listener of a target; raise NoTarget where it has none."""
    if target.listener is None:
        raise NoTarget(f"{target.symbol} has no path through Toxiproxy")
    return target.listener


def container_of(target: Target) -> Container:
    """Return the container of a target; raise NoTarget where it is none."""
    if target.container is None:
        raise NoTarget(f"{target.symbol} is no container")
    return target.container


def who(target: Target) -> dict[str, JsonValue]:
    """Return who is hit, as evidence states it."""
    return {
        "service": target.container.service if target.container else None,
        "node_id": target.node_id,
        "task_id": target.task_id,
        "lease_id": target.lease_id,
    }


def json_of(canary: Canary) -> JsonValue:
    """Return a canary as evidence."""
    return {
        "outcome": canary.outcome,
        "elapsed_s": canary.elapsed_s,
        "sent_bytes": canary.sent_bytes,
        "received_bytes": canary.received_bytes,
        "reads": canary.reads,
    }


def _canary(value: JsonValue) -> Canary:
    found = mapping(value)
    return Canary(
        str(found["outcome"]),
        float(str(found["elapsed_s"])),
        *(integer(found[name]) or 0 for name in ("sent_bytes", "received_bytes", "reads")),
    )
