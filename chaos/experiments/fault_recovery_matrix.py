"""Five kinds of fault, one job each: every one called by its name, and answered as it should be."""

from chaos.model import Action, Comeback, JsonMap, Trigger
from chaos.schedule import Draw, Experiment, expects
from chaos.workloads.matrix import EVERY, EXIT, IMPORT, KILLED, ROTTEN, TORN

DEADLINE_S = 90.0
LOST = expects("retry_task", "node_loss", "worker_crash", resumes=True)


def faults(draw: Draw) -> tuple[Action, ...]:
    """An import error, a bare SystemExit, two kills, and a kill with a flipped bit.

    Victims come back at once, so that no task waits for a worker.
    """
    return (*_crashes(), *_kills(draw), *_rot(draw))


def _crashes() -> tuple[Action, ...]:
    broken: JsonMap = {"ended_by": "exit", **expects("fail_job", "application_error")}
    bare: JsonMap = {
        "ended_by": "exit",
        "exit_code": 3,
        **expects("retry_task", "unknown", "worker_crash", resumes=True),
    }
    return tuple(
        Action(name, "app_crash", f"task of {role}", Trigger(role), DEADLINE_S, params)
        for name, role, params in (
            ("import-error", IMPORT, broken),
            ("system-exit", EXIT, bare),
        )
    )


def _kills(draw: Draw) -> tuple[Action, ...]:
    saves = draw.integer("kill", "checkpoints", 1, 3)
    min_step = EVERY * draw.integer("kill-in-write", "save", 2, 5)
    torn = {"min_step": min_step, **LOST}
    return tuple(
        Action(
            name,
            kind,
            f"holder of {role}",
            Trigger(role, checkpoints_at_least=checkpoints),
            DEADLINE_S,
            params,
            Comeback.AT_ONCE,
        )
        for name, kind, role, checkpoints, params in (
            ("kill", "kill", KILLED, saves, LOST),
            ("kill-in-write", "kill_in_write_window", TORN, 1, torn),
        )
    )


def _rot(draw: Draw) -> tuple[Action, ...]:
    two_saves = Trigger(ROTTEN, checkpoints_at_least=2)
    choice: JsonMap = {"choice": draw.integer("flip", "choice", 0, 2**31 - 1), **LOST}
    holder = f"holder of {ROTTEN}"
    return (Action("flip", "flip_bits", holder, two_saves, DEADLINE_S, choice, Comeback.AT_ONCE),)


EXPERIMENT = Experiment(
    name="fault_recovery_matrix",
    summary="import error, bare exit, kill -9, kill -9 in a save, a rotten checkpoint",
    workload="matrix",
    faults=faults,
    invariants=(
        "resume_newest_valid",
        "rejection_recorded",
        "same_as_reference",
        "typed_as_injected",
    ),
    workers=4,
    order=70,
    quick=False,
)
