"""Brings a run to its end and writes down what is left of it: results, checkpoints, logs."""

from collections.abc import Mapping
from dataclasses import asdict

from chaos.history import HistoryWriter
from chaos.model import ChaosError, Observation
from chaos.observe import Observer
from chaos.ports import World


def drain(observer: Observer, history: HistoryWriter, timeout_s: float) -> None:
    """Wait until every job has ended; jobs that have not are noted, and judged."""

    def ended(seen: Observation) -> bool:
        return bool(seen.jobs) and all(job.terminal for job in seen.jobs.values())

    if not observer.wait(ended, timeout_s):
        open_jobs = [role for role, job in observer.seen.jobs.items() if not job.terminal]
        history.append("note", {"text": f"not ended within {timeout_s:g} s", "jobs": [*open_jobs]})


def collect(world: World, roles: Mapping[str, str], observer: Observer) -> None:
    """Write the final records; what cannot be read is noted, for a judge to call unknown."""
    observer.stop()
    observer.poll()
    history = observer.history
    history.append("collected", {"silent": [*observer.silent]})
    for role, job_id in roles.items():
        try:
            history.append("job_final", {"role": role, **world.runtime.final(job_id)})
        except (ChaosError, ValueError) as error:
            history.append("note", {"text": f"no end of job {role}", "error": repr(error)})
        snapshot(world, role, observer, when="end")


def snapshot(world: World, role: str, observer: Observer, when: str) -> None:
    """Write down the checkpoint tree of a job, every step verified by hash."""
    job = observer.seen.jobs.get(role)
    if job is None or job.task is None:
        return
    try:
        tree = world.files.tree(job.job_id, job.task.task_id)
    except ChaosError as error:
        text = f"checkpoints of {role} cannot be read"
        observer.history.append("note", {"text": text, "error": repr(error)})
    else:
        data = {"role": role, "when": when, **asdict(tree)}
        observer.history.append("checkpoints", data, source="volume")
