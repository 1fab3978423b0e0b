"""The power fails at every moment of a checkpoint save, and of commits at the coordinator."""

from chaos.blackout import PROMISED
from chaos.model import Action, Trigger
from chaos.schedule import Draw, Experiment

LIMIT, MOUNTS = 60, 3
DEADLINE_S = 400.0


def faults(draw: Draw) -> tuple[Action, ...]:
    """Record each save and look at a seeded choice of what may be left of it."""
    whats = list(PROMISED)
    befores = [None, *map(_name, whats)]
    return tuple(_fault(draw, what, before) for what, before in zip(whats, befores, strict=False))


def _name(what: str) -> str:
    return f"power-loss-{what}"


def _fault(draw: Draw, what: str, before: str | None) -> Action:
    fault_id = _name(what)
    return Action(
        fault_id=fault_id,
        kind="power_loss",
        target="coordinator",
        trigger=Trigger(after=before),
        deadline_s=DEADLINE_S,
        params={
            "what": what,
            "choice": draw.integer(fault_id, "choice", 0, 2**31 - 1),
            "limit": LIMIT,
            "mounts": MOUNTS,
        },
    )


EXPERIMENT = Experiment(
    name="power_loss",
    summary="the power fails at each moment of a save; every volume that may be left is used again",
    workload="small_steps",
    faults=faults,
    invariants=("survives_power_loss",),
    workers=2,
    order=60,
    quick=False,
    rare=True,
    drain_s=240.0,
)
