"""The coordinator dies right after it has answered, at each kind of moment that it decides on.

One job a kill: after a claim, a heartbeat, a registered checkpoint, a lapsed lease, a commit. It is
started again at once; nothing that was answered may be gone.
"""

from chaos.model import Action, Comeback, JsonMap, Trigger
from chaos.schedule import Draw, Experiment, expects
from chaos.workloads.cycles import role

KILL_S = 40.0
BORNE: JsonMap = {"costs_nothing": True}
LOST = expects("retry_task", "node_loss", "worker_crash", resumes=True)


def faults(draw: Draw) -> tuple[Action, ...]:
    """Kill the coordinator `count` times, each time at the next kind of moment."""
    found: list[Action] = []
    for number in range(1, draw.count + 1):
        after = found[-1].fault_id if found else None
        found += WINDOWS[(number - 1) % len(WINDOWS)](draw, number, after)
    return tuple(found)


def _at_claim(draw: Draw, number: int, after: str | None) -> list[Action]:
    del draw
    return [_kill("claim", number, Trigger(role(number), event="LEASE_CLAIMED", after=after))]


def _at_heartbeat(draw: Draw, number: int, after: str | None) -> list[Action]:
    step = draw.integer(f"heartbeat-{number:03d}", "step", 10, 60)
    return [_kill("heartbeat", number, Trigger(role(number), step_at_least=step, after=after))]


def _at_manifest(draw: Draw, number: int, after: str | None) -> list[Action]:
    del draw
    moment = Trigger(role(number), event="CHECKPOINT_MANIFEST_COMMITTED", after=after)
    return [_kill("manifest", number, moment)]


def _at_sweep(draw: Draw, number: int, after: str | None) -> list[Action]:
    """A worker dies first, so that there is a lease to take away."""
    saves = draw.integer(f"sweep-{number:03d}", "checkpoints", 1, 3)
    worker = Action(
        fault_id=f"worker-{number:03d}",
        kind="kill",
        target=f"holder of {role(number)}",
        trigger=Trigger(role(number), checkpoints_at_least=saves, after=after),
        deadline_s=KILL_S * (number + 1),
        params=LOST,
        comeback=Comeback.RECLAIMED,
    )
    return [worker, _kill("sweep", number, Trigger(role(number), event="LEASE_EXPIRED"))]


def _at_commit(draw: Draw, number: int, after: str | None) -> list[Action]:
    del draw
    moment = Trigger(role(number), event="TASK_COMMIT_ACCEPTED", after=after)
    return [_kill("commit", number, moment)]


def _kill(moment: str, number: int, trigger: Trigger) -> Action:
    return Action(
        fault_id=f"{moment}-{number:03d}",
        kind="kill",
        target="coordinator",
        trigger=trigger,
        deadline_s=KILL_S * (number + 1),
        params=BORNE,
        comeback=Comeback.AT_ONCE,
    )


WINDOWS = (_at_claim, _at_heartbeat, _at_manifest, _at_sweep, _at_commit)

EXPERIMENT = Experiment(
    name="coordinator_kills",
    summary="kill -9 of the coordinator at claim, heartbeat, manifest, sweep and commit",
    workload="cycles",
    faults=faults,
    invariants=("costs_nothing", "resume_newest_valid", "same_as_reference", "typed_as_injected"),
    order=130,
    quick=False,
    count=5,
    variants=("relay",),
)
