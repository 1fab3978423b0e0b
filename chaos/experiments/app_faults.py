"""Ten kinds of harm by a job's own code, a job each: called by name, answered as the table says."""

from chaos.model import Action, JsonMap, Trigger
from chaos.schedule import Draw, Experiment, expects
from chaos.workloads.app_faults import AMOUNTS, FINAL, PASSING

DEADLINE_S = 150.0
SEEN_AS: dict[str, JsonMap] = {
    "import_error": {"ended_by": "exit", "error_type": "ModuleNotFoundError"},
    "exception": {"ended_by": "exit", "error_type": "KeyError"},
    "nan_loss": {"ended_by": "exit", "error_type": "FloatingPointError"},
    "system_exit": {"ended_by": "exit", "exit_code": 3},
    "segfault": {"ended_by": "signal", "signal": 11},
    "self_exit_137": {"ended_by": "exit", "exit_code": 137},
    "hang": {"ended_by": "hung"},
}
CLASSES = {
    "system_exit": ("unknown",),
    "segfault": ("worker_crash",),
    "self_exit_137": ("worker_crash",),
    "hang": ("unknown",),
}


def faults(draw: Draw) -> tuple[Action, ...]:
    """Expect each job to do what it is armed for."""
    del draw
    bugs = {mode: expects("fail_job", "application_error") for mode in FINAL}
    passing = {mode: expects("retry_task", *CLASSES[mode], resumes=True) for mode in PASSING}
    crashes = [
        _action(mode, "app_crash", {"mode": mode, **SEEN_AS[mode], **expected})
        for mode, expected in (bugs | passing).items()
    ]
    strains = [
        _action(mode, "app_strain", {"mode": mode, "at_least": amount, "costs_nothing": True})
        for mode, amount in AMOUNTS.items()
    ]
    return (*crashes, *strains)


def _action(mode: str, kind: str, params: JsonMap) -> Action:
    return Action(mode, kind, f"task of {mode}", Trigger(mode), DEADLINE_S, params)


EXPERIMENT = Experiment(
    name="app_faults",
    summary="bugs, crashes, a hang, a held interpreter, 200 children, a flood: a job for each",
    workload="app_faults",
    faults=faults,
    invariants=(
        "resume_newest_valid",
        "same_as_reference",
        "typed_as_injected",
        "costs_nothing",
        "no_orphan_process",
    ),
    workers=4,
    order=180,
    quick=False,
)
