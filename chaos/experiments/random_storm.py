"""64 tasks on 4 workers under a random fault every 2 s, from all that faults offer to storms.

Faults at one worker come one after the other; those at the coordinator or at Toxiproxy come alone.
"""

from chaos.catalogue import templates
from chaos.model import Action
from chaos.schedule import Draw, Experiment
from chaos.storm import Shape, storm
from chaos.workloads.many_tasks import EVERY_S

WORKERS, FLOOR = 4, 2
COUNT = 7
"""15 seconds; `make soak` carries out ten minutes."""
VARIANTS = ("clock",)


def faults(draw: Draw) -> tuple[Action, ...]:
    """Draw `count` faults."""
    shape = Shape(draw.count, WORKERS, every_s=EVERY_S, floor=FLOOR, variants=VARIANTS)
    return storm(draw, templates(), shape)


EXPERIMENT = Experiment(
    name="random_storm",
    summary="64 tasks on 4 workers, a random fault every 2 s, at the coordinator too",
    workload="many_tasks",
    faults=faults,
    invariants=("resume_newest_valid",),
    workers=WORKERS,
    order=300,
    quick=False,
    drain_s=240.0,
    count=COUNT,
    variants=VARIANTS,
    floor=FLOOR,
)
