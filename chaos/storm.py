"""Random schedules: so many faults over so long, drawn from what the faults themselves offer.

Each decision hashes (seed, fault id, name), and a choice is the candidate with the highest hash, as
in Thaler and Ravishankar, IEEE/ACM Transactions on Networking 6(1), 1998 (doi:10.1109/90.663936):
another candidate or fault leaves every choice as it was that it does not win itself.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from chaos.model import Action, Comeback, JsonMap, Trigger
from chaos.schedule import FLOOR, Draw

UNIT = 1 << 53
TRIES = 5
"""A worker's task may end between the look that a fault fires on and the fault: then it missed."""
EVERY_LANE = "*"


class Aim(StrEnum):
    """Whom a fault of a storm is aimed at."""

    WORKER = "worker"
    COORDINATOR = "coordinator"
    TOXIPROXY = "toxiproxy"


def nothing(_draw: Draw, _fault_id: str) -> JsonMap:
    """Return no parameters."""
    return {}


@dataclass(frozen=True, slots=True)
class Template:
    """How a kind of fault joins storms. Modules in chaos.faults may hold one as TEMPLATE.

    `params` draws its parameters. Of the `aims` each has the chance of one fault; one that is not
    at a worker fires alone. `takes` tells that its worker is away until another has the task, or
    until it is put back. It waits until its worker's task has so many `checkpoints`. `variant` is
    the one that a stack must have for it.
    """

    params: Callable[[Draw, str], JsonMap] = nothing
    aims: tuple[Aim, ...] = (Aim.WORKER,)
    weight: float = 1.0
    takes: bool = False
    checkpoints: int | None = None
    variant: str | None = None


@dataclass(frozen=True, slots=True)
class Shape:
    """A storm: `count` faults, one each `every_s` from `first_s` on, up to `jitter_ms` later.

    Of its `workers` never fewer than `floor` are left. Faults that have not fired `patience_s`
    after the last one was due have missed. `weights` are factors by kind, 1 where nothing is said.
    """

    count: int
    workers: int
    every_s: float = 2.0
    first_s: float = 1.0
    jitter_ms: int = 400
    floor: int = FLOOR
    patience_s: float = 120.0
    variants: tuple[str, ...] = ()
    weights: Mapping[str, float] = field(default_factory=dict)


def storm(draw: Draw, templates: Mapping[str, Template], shape: Shape) -> tuple[Action, ...]:
    """Return the schedule; the first n faults of a longer one are those of a shorter one.

    Only their deadlines depend on how many there are.
    """
    usable = {kind: each for kind, each in templates.items() if _fits(each, shape)}
    if not usable:
        return ()
    return tuple(_fault(draw, usable, shape, number) for number in range(shape.count))


def choose(draw: Draw, fault_id: str, name: str, weights: Mapping[str, float]) -> str:
    """Return one of the names, each as often as its weight says."""

    def score(candidate: str) -> float:
        drawn = draw.integer(fault_id, f"{name} {candidate}", 1, UNIT - 1)
        return -weights[candidate] / math.log(drawn / UNIT)

    return max(sorted(candidate for candidate in weights if weights[candidate] > 0), key=score)


def _fits(template: Template, shape: Shape) -> bool:
    has_variant = template.variant in {None, *shape.variants}
    return has_variant and not (template.takes and shape.workers <= shape.floor)


def _fault(draw: Draw, usable: Mapping[str, Template], shape: Shape, number: int) -> Action:
    fault_id = f"storm-{number:03d}"
    kind, aim = _kind_and_aim(draw, fault_id, usable, shape)
    template = usable[kind]
    workers = {f"worker {n}": 1.0 for n in range(1, shape.workers + 1)}
    target = choose(draw, fault_id, "target", workers) if aim is Aim.WORKER else str(aim)
    late_ms = draw.integer(fault_id, "late_ms", 0, shape.jitter_ms)
    trigger = Trigger(
        role=choose(draw, fault_id, "target", workers),
        checkpoints_at_least=template.checkpoints if aim is Aim.WORKER else None,
        elapsed_s=shape.first_s + number * shape.every_s + late_ms / 1e3,
    )
    return Action(
        fault_id=fault_id,
        kind=kind,
        target=target,
        trigger=trigger,
        deadline_s=shape.first_s + shape.count * shape.every_s + shape.patience_s,
        params=template.params(draw, fault_id),
        comeback=Comeback.RECLAIMED if template.takes and aim is Aim.WORKER else Comeback.AT_ONCE,
        lanes=_lanes(draw, fault_id, target, shape) if aim is Aim.WORKER else (EVERY_LANE,),
        tries=TRIES,
    )


def _kind_and_aim(
    draw: Draw, fault_id: str, usable: Mapping[str, Template], shape: Shape
) -> tuple[str, Aim]:
    weights = {
        f"{kind} {aim}": template.weight * shape.weights.get(kind, 1.0)
        for kind, template in usable.items()
        for aim in template.aims
    }
    kind, _, aim = choose(draw, fault_id, "kind", weights).rpartition(" ")
    return kind, Aim(aim)


def _lanes(draw: Draw, fault_id: str, target: str, shape: Shape) -> tuple[str, ...]:
    """Return the lane of its worker, and a seat: there are as many seats as workers may be away.

    Whoever shares a seat waits, so that the floor holds by the plan alone.
    """
    seats = {f"seat {n}": 1.0 for n in range(1, max(1, shape.workers - shape.floor) + 1)}
    return (target, choose(draw, fault_id, "seat", seats))
