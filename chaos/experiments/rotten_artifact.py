"""Accepted outputs rot in the store: found by a read or by the scrubber, healed by an upload."""

from chaos.model import Action, Trigger
from chaos.schedule import Draw, Experiment
from chaos.workloads.outputs import KINDS

DEADLINE_S = 120.0


def faults(draw: Draw) -> tuple[Action, ...]:
    """Damage an output of each job after its end, one after the other; a restart finds the last."""
    kinds = sorted(KINDS, key=lambda kind: draw.integer("order", kind, 0, 2**31 - 1))
    return tuple(
        Action(
            fault_id=f"rot-{kind.replace('_', '-')}",
            kind=kind,
            target=f"artifacts of {kind}",
            trigger=Trigger(kind, event="JOB_SUCCEEDED", after=_rot(before)),
            deadline_s=DEADLINE_S,
            params={
                "choice": draw.integer(f"rot-{kind}", "choice", 0, 2**31 - 1),
                "found_by": "scrub" if kind == kinds[-1] else "read",
            },
        )
        for before, kind in zip((None, *kinds), kinds, strict=False)
    )


def _rot(kind: str | None) -> str | None:
    return None if kind is None else f"rot-{kind.replace('_', '-')}"


EXPERIMENT = Experiment(
    name="rotten_artifact",
    summary="accepted outputs are damaged in the store in every way",
    workload="outputs",
    faults=faults,
    invariants=("rot_found",),
    workers=2,
    order=116,
    quick=False,
)
