"""What an attempt tells of its steps, and what follows from it. Pure."""

from dataclasses import replace

from flashruntime.leases.record import LeaseRow, LeaseState, TaskRow


def told(
    lease: LeaseRow, step: int | None, resumed_from: int | None, checkpoint_step: int | None
) -> LeaseRow:
    """Return a lease with what its holder states; what it leaves out stays as it was."""
    if step is None and resumed_from is None and checkpoint_step is None:
        return lease
    return replace(
        lease,
        step=lease.step if step is None else step,
        resumed_from=lease.resumed_from if resumed_from is None else resumed_from,
        checkpoint_step=lease.checkpoint_step if checkpoint_step is None else checkpoint_step,
    )


def saved(lease: LeaseRow | None) -> int | None:
    """Return the newest checkpoint in the tree of an attempt, by what it tells itself."""
    if lease is None or lease.checkpoint_step is None:
        return None if lease is None else lease.resumed_from
    return lease.checkpoint_step


def recomputed(task: TaskRow, lease: LeaseRow | None) -> int:
    """Return how many of the attempt's steps an earlier attempt had done already.

    An attempt goes from where it resumed, else from 0, to the last step that it told.
    """
    if lease is None or lease.step is None:
        return 0
    return max(0, min(lease.step, task.high_step) - (lease.resumed_from or 0))


def after(task: TaskRow, previous: LeaseRow | None) -> TaskRow:
    """Return the task as its next attempt finds it.

    An attempt that was lost after it had begun has done with the suspect it was told of.
    """
    if previous is None:
        return task
    lost = previous.state not in {LeaseState.FAILED, LeaseState.COMPLETED}
    return replace(
        task,
        recomputed=task.recomputed + recomputed(task, previous),
        high_step=max(task.high_step, previous.step or 0),
        suspect_step=None if lost and previous.step is not None else task.suspect_step,
    )


def suspect(task: TaskRow, lease: LeaseRow, *, repeated: bool) -> TaskRow:
    """Return the task after a failure, with a suspect if two in a row were the same.

    Attempts that got no further than where they resumed make that checkpoint suspect.
    """
    stuck = lease.step if lease.step == lease.resumed_from else None
    found = stuck if repeated and stuck is not None and stuck == task.failed_resume else None
    return replace(task, failed_resume=stuck, suspect_step=found)
