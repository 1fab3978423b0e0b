"""Latency, black hole, reset and one-way partition, each on heartbeats, an upload and a commit.

Those on heartbeats may outlast the lease; those at the end of a job begin before its last save and
hold on until its upload and its commit have been tried.
"""

from chaos.model import Action, JsonMap, Trigger
from chaos.schedule import Draw, Experiment
from chaos.workloads.paths import FAULTS, HEARTBEAT, MOMENTS, SAVES, role

DEADLINE_S = 240.0
COMMITTED = "TASK_COMMIT_ACCEPTED"
HOLDS_MS = (1500, 4500)


def faults(draw: Draw) -> tuple[Action, ...]:
    """Hit each job's holder with its fault at its moment."""
    return tuple(_hit(draw, fault, moment) for moment in MOMENTS for fault in FAULTS)


def _hit(draw: Draw, fault: str, moment: str) -> Action:
    job = role(fault, moment)
    hold: JsonMap = {"hold_ms": draw.integer(job, "hold_ms", 1500, 2500)}
    if moment == HEARTBEAT:
        trigger = Trigger(job, step_at_least=draw.integer(job, "step", 10, 40))
        hold = {"hold_ms": draw.choice(job, "hold_ms", HOLDS_MS)}
    else:
        trigger = Trigger(job, checkpoints_at_least=draw.integer(job, "saves", 4, 6))
        hold = {**hold, "through_checkpoints": SAVES, "ahead_of": COMMITTED}
    params = {**hold, **_params(draw, job, fault)}
    return Action(job, fault, f"holder of {job}", trigger, DEADLINE_S, params)


def _params(draw: Draw, job: str, fault: str) -> JsonMap:
    if fault == "latency":
        return {
            "latency_ms": draw.integer(job, "latency_ms", 200, 400),
            "jitter_ms": draw.integer(job, "jitter_ms", 0, 100),
            "stream": draw.choice(job, "stream", ("upstream", "downstream", "both")),
        }
    if fault == "timeout":
        return {"stream": draw.choice(job, "stream", ("upstream", "downstream", "both"))}
    if fault == "one_way_partition":
        return {"flow": draw.choice(job, "flow", ("in", "out"))}
    return {}


EXPERIMENT = Experiment(
    name="network_moments",
    summary="latency, black hole, reset, one-way partition on heartbeats, uploads and commits",
    workload="paths",
    faults=faults,
    invariants=("resume_newest_valid", "same_as_reference"),
    workers=4,
    order=200,
    quick=False,
    rare=True,
    drain_s=180.0,
)
