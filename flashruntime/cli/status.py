"""Show a job and its tasks."""

import json
from argparse import ArgumentParser, Namespace
from pathlib import Path

from flashruntime.cli.common import JOB_HELP, add_coordinator, connect, local_run, plain, table
from flashruntime.errors import NotFound
from flashruntime.protocol.jobs import JobRecord
from flashruntime.protocol.tasks import TaskRecord
from flashruntime.sdk.home import is_held
from flashruntime.sdk.journal import RunDocument, read_run

MAX_ROWS = 50


def add_arguments(parser: ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument("job", metavar="JOB", help=JOB_HELP)
    parser.add_argument("--json", action="store_true", help="print the records as JSON")
    add_coordinator(parser)


def run(args: Namespace, parser: ArgumentParser) -> int:
    """Print the job and return 0."""
    if (place := local_run(args)) is not None:
        return _local(place, as_json=args.json)
    with connect(args, parser) as client:
        job, tasks = client.job(args.job), client.tasks(args.job)
    if args.json:
        records = {"job": job.model_dump(mode="json")}
        records["tasks"] = [task.model_dump(mode="json") for task in tasks]  # type: ignore[assignment]
        print(json.dumps(records, allow_nan=False, indent=2))
        return 0
    print(job_text(job))
    print(tasks_text(tasks))
    return 0


def _local(place: Path, *, as_json: bool) -> int:
    run = read_run(place)
    if run is None:
        raise NotFound(f"{place}/run.json cannot be read; was it written by `flashruntime submit`?")
    if as_json:
        print(run.model_dump_json(indent=2))
        return 0
    counts = ", ".join(f"{number} {state}" for state, number in sorted(run.tasks.items()) if number)
    print(f"{run.job_id}  {run.state}  {plain(' '.join(run.command))[:80]}  ({counts})")
    if run.reason:
        print(f"reason: {plain(run.reason)}")
    if not run.state.terminal and not is_held(place):
        print("its submitter has ended before it; submit again to go on from its checkpoints")
    print(local_text(run))
    return 0


def local_text(run: RunDocument) -> str:
    """Return a table of the newest attempts of a local run."""
    header = ["TASK", "ATTEMPT", "STATE", "STEP", "RESUMED", "SECONDS", "REASON"]
    rows = [
        [
            *map(str, (attempt.task, attempt.number + 1, attempt.state)),
            *(
                "-" if value is None else str(value)
                for value in (attempt.step, attempt.resumed_from)
            ),
            "-" if attempt.duration_s is None else f"{attempt.duration_s:.1f}",
            plain(attempt.reason)[:200],
        ]
        for attempt in run.attempts[-MAX_ROWS:]
    ]
    return table([header, *rows])


def job_text(job: JobRecord) -> str:
    """Return a job in a line or two."""
    counts = ", ".join(f"{number} {state}" for state, number in sorted(job.tasks.items()) if number)
    lines = [f"{job.job_id}  {job.state}  {plain(job.name)}  ({counts})"]
    if job.reason:
        lines.append(f"reason: {plain(job.reason)}")
    if job.waiting_for:
        lines.append(f"waiting: {plain(job.waiting_for)}")
    return "\n".join(lines)


def tasks_text(tasks: list[TaskRecord]) -> str:
    """Return a table of tasks, those that need attention first where there are many."""
    shown = sorted(tasks, key=lambda task: (task.state == "COMPLETED", task.index))[:MAX_ROWS]
    header = ["TASK", "STATE", "ATTEMPTS", "STEP", "RESUMED", "NODE", "METRICS OR REASON"]
    rows = [header] + [_row(task) for task in sorted(shown, key=lambda task: task.index)]
    text = table(rows)
    hidden = len(tasks) - len(shown)
    return text + (f"\n... and {hidden} more tasks" if hidden else "")


def _row(task: TaskRecord) -> list[str]:
    metrics = ", ".join(f"{plain(name)}={value}" for name, value in (task.metrics or {}).items())
    numbers = ["-" if value is None else str(value) for value in (task.step, task.resumed_from)]
    node = plain(task.node_id) or "-"
    about = metrics or plain(task.reason)
    return [str(task.index), task.state, str(task.attempts), *numbers, node, about[:200]]
