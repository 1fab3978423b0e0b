"""What is measured in a history. Durations are computed only between times of equal boot id."""

from collections.abc import Sequence

from chaos.figures.late import late
from chaos.figures.loss import Loss, lease_s, losses, untold
from chaos.figures.steps import Work, goodput, work
from chaos.figures.typed import Case, cases
from chaos.history import History, HistoryError, integer, items, mapping
from chaos.model import JsonValue, Landed

WINDOW = "kill_in_write_window"
NS = 1_000_000_000

__all__ = [
    "Case",
    "Loss",
    "Work",
    "cases",
    "figures",
    "goodput",
    "integrity",
    "late",
    "lease_s",
    "losses",
    "untold",
    "work",
]


def figures(history: History) -> dict[str, JsonValue]:
    """Return what the verdict states as figures; lists hold one number for each loss.

    The later ones are there where the run has something to count them from.
    """
    lost = losses(history)
    disturbed = [*history.likes()] or ["main"]
    useful = goodput(history, *disturbed)
    return {
        "mttd_s": _rounded([loss.detected_s for loss in lost]),
        "reclaim_s": _rounded([loss.reclaimed_s for loss in lost]),
        "mttr_s": _rounded([loss.progressed_s for loss in lost]),
        "commit_s": _rounded([loss.commit_s for loss in lost]),
        "goodput": round(useful, 4) if useful is not None else None,
        **_tasks(history, disturbed),
        **_walls(history),
        **_typed(history),
        **integrity(history),
    }


def _rounded(seconds: Sequence[float | None]) -> list[JsonValue]:
    return [round(each, 3) for each in seconds if each is not None]


def _tasks(history: History, roles: list[str]) -> dict[str, JsonValue]:
    """Count the tasks of the jobs that faults hit: ended well, failed once, steps done again."""
    try:
        ends = [end for role in roles for end in history.task_ends(role)]
    except HistoryError:
        return {}
    done = [each for role in roles for each in work(history, role)]
    useful, kept = sum(each.useful for each in done), sum(each.kept for each in done)
    jobs = {job for job, role in history.role_of().items() if role in roles}
    failed = {e.task_id for e in history.events() if e.type == "TASK_ATTEMPT_FAILED"}
    return {
        "tasks": len(ends),
        "completed": sum(end.get("state") == "COMPLETED" for end in ends),
        "attempts": sum(integer(end.get("attempts")) or 0 for end in ends),
        "crashed": sum(end.get("task_id") in failed and end.get("job_id") in jobs for end in ends),
        "executed_steps": sum(each.executed for each in done),
        "useful_steps": useful,
        "recompute_fraction": round(sum(e.redone for e in done) / useful, 4) if useful else None,
        "goodput_lower_bound": round(useful / (useful + kept), 4) if useful else None,
    }


def _walls(history: History) -> dict[str, JsonValue]:
    """Return how long each job took, and the penalty of a disturbed one with several tasks."""
    walls: dict[str, float] = {}
    for job_id, role in history.role_of().items():
        times = [e.mono_ns for e in history.events(job_id)]
        if len({e.boot_id for e in history.events(job_id)}) == 1 and history.heard_out(job_id):
            walls[role] = round((max(times) - min(times)) / NS, 3)
    several = {lane.partition("/")[0] for lane in history.lanes.values() if "/" in lane}
    penalties = [
        walls[role] / walls[like] - 1
        for role, like in history.likes().items()
        if role in several and walls.get(like) and role in walls
    ]
    told: dict[str, JsonValue] = {"wall_s": {**walls}} if walls else {}
    return told | ({"penalty": round(penalties[0], 4)} if penalties else {})


def _typed(history: History) -> dict[str, JsonValue]:
    if not history.of("plan"):
        return {}
    found = cases(history)
    return {"correct": sum(not c.wrong for c in found), "cases": len(found)} if found else {}


def integrity(history: History) -> dict[str, JsonValue]:
    """Count the kills that landed in a write window, and those that the task survived.

    Survived: the next attempt took over a verified step before the torn one, and the task ended
    well. A kill that the window did not see is counted, and in no other number.
    """
    hits = [
        mapping(receipt.get("evidence"))
        for receipt in history.of("fault_receipt")
        if receipt.get("kind") == WINDOW and receipt.get("landed") == Landed.LANDED
    ]
    kills = sum(
        integer(mapping(receipt.get("evidence")).get("kills")) or 0
        for receipt in history.of("fault_receipt")
        if receipt.get("kind") == WINDOW
    )
    if not kills:
        return {}
    steps = [_taken_over(history, str(hit.get("lease_id"))) for hit in hits]
    survived = [
        step
        for hit, step in zip(hits, steps, strict=True)
        if step and step < (integer(hit.get("step")) or 0) and _ended_well(history, hit)
    ]
    return {
        "kills_in_window": len(hits),
        "windows_missed": kills - len(hits),
        "integrity_rate": round(len(survived) / len(hits), 4) if hits else None,
        "resumed_from": [*steps],
    }


def _taken_over(history: History, lease_id: str) -> int | None:
    """Return the step that the attempt after this one took over."""
    for tree in reversed(history.of("checkpoints")):
        links = items(tree.get("lineage"))
        order = [link.get("attempt_id") for link in links]
        if lease_id in order[:-1]:
            return integer(links[order.index(lease_id) + 1].get("step"))
    return None


def _ended_well(history: History, hit: dict[str, JsonValue]) -> bool:
    tasks = {e.task_id for e in history.events() if e.lease_id == hit.get("lease_id")}
    accepted = {e.task_id for e in history.events() if e.type == "TASK_COMMIT_ACCEPTED"}
    return bool(tasks) and tasks <= accepted
