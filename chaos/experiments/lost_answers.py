"""The answer to a claim, to a completion and to a submission is lost: nothing is done twice."""

from chaos.model import Action, JsonMap, Trigger
from chaos.schedule import Draw, Experiment
from chaos.workloads.answers import CLAIMS, COMPLETES

DEADLINE_S = 180.0
FIRST = f"{CLAIMS}/0"


def faults(draw: Draw) -> tuple[Action, ...]:
    """Cut one answer for each kind of call, on the caller's own path."""
    saves = draw.integer("complete", "saves", 3, 6)
    complete = Trigger(COMPLETES, checkpoints_at_least=saves)
    submit = Trigger("reference", checkpoints_at_least=draw.integer("submit", "saves", 1, 3))
    claim = Trigger(FIRST, checkpoints_at_least=draw.integer("claim", "saves", 1, 4))
    return (
        _cut(draw, "submit", "coordinator", submit),
        _cut(draw, "complete", f"holder of {COMPLETES}", complete),
        _cut(draw, "claim", f"holder of {FIRST}", claim),
    )


def _cut(draw: Draw, call: str, target: str, trigger: Trigger) -> Action:
    params: JsonMap = {"call": call, "latency_ms": draw.integer(call, "latency_ms", 1500, 2500)}
    return Action(call, "lost_answer", target, trigger, DEADLINE_S, params)


EXPERIMENT = Experiment(
    name="lost_answers",
    summary="the answers to a claim, a completion and a submission are lost on the way",
    workload="answers",
    faults=faults,
    invariants=("resume_newest_valid", "same_as_reference", "submitted_once"),
    order=210,
    quick=False,
)
