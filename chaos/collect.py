"""Brings a run to its end and writes down what is left of it: results, checkpoints, logs."""

import json
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict
from pathlib import Path, PurePosixPath

from chaos.history import HistoryWriter, digest
from chaos.model import ChaosError, JobView, JsonValue, Observation
from chaos.observe import Observer
from chaos.ports import World

TICK_S = 0.5
MAX_GAPS = 20
ENDING_S = 5.0
"""For what ends after its job: the worker kills it, and the kernel takes it down."""


def drain(observer: Observer, timeout_s: float, submit_due: Callable[[], bool]) -> None:
    """Wait until every job has ended, and note those that have not.

    `submit_due` submits those whose turn has come, and tells whether all were submitted.
    """

    def ended(seen: Observation) -> bool:
        is_seen = bool(seen.jobs) and observer.roles <= set(seen.jobs)
        return is_seen and all(job.terminal for job in seen.jobs.values())

    deadline = time.monotonic() + timeout_s
    while (left_s := deadline - time.monotonic()) > 0:
        done = submit_due()
        if observer.wait(ended, left_s if done else min(TICK_S, left_s)) and done:
            return
    open_jobs = [role for role, job in observer.seen.jobs.items() if not job.terminal]
    data: dict[str, JsonValue] = {"text": f"not ended within {timeout_s:g} s", "jobs": [*open_jobs]}
    observer.history.append("note", data)


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
    snapshots(world, observer, when="end")
    _ask_again(world, observer)


def _ask_again(world: World, observer: Observer) -> None:
    """Ask for every event again."""
    try:
        again = {str(event["id"]): digest(event) for event in world.runtime.events_again()}
        observer.history.append("events_again", {"digests": {**again}})
    except (ChaosError, ValueError) as error:
        observer.history.append("note", {"text": "no events_again", "error": repr(error)})


def list_processes(world: World, files: frozenset[str], history: HistoryWriter) -> None:
    """Write down what the workers run; look again, for a while, where a job's own is left.

    `files` are the names of the jobs' own files, by which their processes are known.
    """
    deadline = time.monotonic() + ENDING_S
    while True:
        containers = [_listed(world, node_id) for node_id in world.runtime.nodes()]
        commands = [str(each) for _, found in containers for each in found]
        words = {PurePosixPath(word).name for each in commands for word in each.split()}
        if not words & files or time.monotonic() > deadline:
            break
        time.sleep(TICK_S)
    told: list[JsonValue] = [{"service": name, "commands": found} for name, found in containers]
    history.append("processes", {"containers": told}, source="host")


def _listed(world: World, node_id: str) -> tuple[str, list[JsonValue]]:
    container = world.containers.of_node(node_id)
    return container.service, [each.command for each in world.processes.listing(container)]


def snapshots(world: World, observer: Observer, when: str) -> None:
    """Write down the checkpoint tree of each task that has begun, every step verified by hash."""
    for job in observer.seen.jobs.values():
        if job.task is not None and job.task.attempts > 0:
            _snapshot(world, job, job.task.task_id, observer, when)


def _snapshot(world: World, job: JobView, task_id: str, observer: Observer, when: str) -> None:
    try:
        tree = world.files.tree(job.job_id, task_id)
    except ChaosError as error:
        text = f"checkpoints of {job.role} cannot be read"
        observer.history.append("note", {"text": text, "error": repr(error)})
    else:
        data = {"role": job.role, "when": when, **asdict(tree)}
        observer.history.append("checkpoints", data, source="volume")


def sequences(logs: Path) -> dict[str, JsonValue]:
    """Return, of each log, how many lines it has, how many are numbered, and what is missing.

    A process numbers its lines from 1, so that a 1 begins another one: nothing is missing there.
    """
    return {path.stem: _sequence(path) for path in sorted(logs.glob("*.log"))}


def _sequence(path: Path) -> JsonValue:
    lines = numbered = processes = last = 0
    gaps: list[JsonValue] = []
    with path.open(encoding="utf-8", errors="replace") as stream:
        for lines, number in enumerate(_numbers(stream), start=1):
            if number is None:
                continue
            if number == 1:
                processes += 1
            elif number != last + 1 and len(gaps) < MAX_GAPS:
                gaps.append({"line": lines, "after": last, "found": number})
            numbered, last = numbered + 1, number
    return {"lines": lines, "numbered": numbered, "processes": processes, "gaps": gaps}


def _numbers(lines: Iterable[str]) -> Iterable[int | None]:
    """Yield the number of each line, None for a line that is no numbered JSON object."""
    for line in lines:
        try:
            told = json.loads(line)
        except ValueError:
            yield None
            continue
        number = told.get("seq") if isinstance(told, dict) else None
        yield number if isinstance(number, int) else None
