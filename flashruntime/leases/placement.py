"""Which node may run which task: pure functions over what is asked for and what is offered.

What a job asks of a node is one text, its need, which all its tasks share: equal needs are one
class in the queue, and what a node cannot take is skipped by class, never task by task.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache

from flashruntime.protocol.base import strict_dumps
from flashruntime.protocol.nodes import NodeDuty, NodeOrder
from flashruntime.protocol.placement import NodeCapabilities, PlacedParameters, Resources

ANY_NODE = ""
_CLOSED = {NodeDuty.DRAINING, NodeDuty.DRAINED}


@dataclass(frozen=True, slots=True)
class Offer:
    """What a node has free, or has at all, and its labels."""

    resources: Resources
    labels: Mapping[str, str] = field(default_factory=dict)


def need_of(parameters: PlacedParameters) -> str:
    """Return the need of a job's tasks: equal texts for what is equal."""
    asked = PlacedParameters(
        resources=parameters.resources, node_selector=parameters.node_selector
    ).model_dump(exclude_defaults=True)
    return strict_dumps(asked) if asked else ANY_NODE


@lru_cache(maxsize=4096)
def asked_for(need: str) -> PlacedParameters:
    """Return what a need asks for."""
    return PlacedParameters.model_validate_json(need) if need else PlacedParameters()


def offer_of(declared: NodeCapabilities, free: Resources | None = None) -> Offer:
    """Return what a node offers: what it says is free, else all that it has."""
    whole = Resources(
        cpus=declared.cpus,
        memory_bytes=declared.memory_bytes,
        accelerators=declared.accelerators,
    )
    return Offer(free or whole, declared.labels)


def fits(need: str, offer: Offer) -> bool:
    """Return whether a node that offers this can take a task with this need."""
    if need == ANY_NODE:
        return True
    asked = asked_for(need)
    return _covers(asked.resources, offer.resources) and all(
        offer.labels.get(key) == value for key, value in asked.node_selector.items()
    )


def _covers(asked: Resources, has: Resources) -> bool:
    return (
        asked.cpus <= has.cpus
        and asked.memory_bytes <= has.memory_bytes
        and asked.accelerators <= has.accelerators
    )


def missing(need: str, offers: Mapping[str, Offer], closed: Mapping[str, Offer]) -> str | None:
    """Say that none of `offers` (by node id) can take a task with this need; None if one can.

    `closed` are those of nodes that take no new tasks now.
    """
    if any(fits(need, offer) for offer in offers.values()):
        return None
    words = words_of(need)
    held = sorted(node for node, offer in closed.items() if fits(need, offer))
    if held:
        return f"no open node offers {words}; {held[0]} does and is cordoned or drained"
    known = f"{len(offers)} node{'s' if len(offers) != 1 else ''}"
    return f"no node offers {words} ({known} known); add one, or ask for less"


def words_of(need: str) -> str:
    """Return a need in words."""
    asked = asked_for(need)
    amounts = [f"{name}={value:g}" for name, value in asked.resources if value]
    labels = [f"label {key}={value}" for key, value in sorted(asked.node_selector.items())]
    return ", ".join([*amounts, *labels]) or "nothing in particular"


def ordered(duty: NodeDuty, order: NodeOrder) -> NodeDuty:
    """Return what a node is to do after an order; the same order again changes nothing."""
    if order is NodeOrder.UNCORDON:
        return NodeDuty.ACTIVE
    if duty in _CLOSED:
        return duty
    return NodeDuty.CORDONED if order is NodeOrder.CORDON else NodeDuty.DRAINING
