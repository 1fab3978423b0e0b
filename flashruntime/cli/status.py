"""Show a job and its tasks."""

import json
from argparse import ArgumentParser, Namespace

from flashruntime.cli.common import add_coordinator, connect, plain, table
from flashruntime.protocol.jobs import JobRecord
from flashruntime.protocol.tasks import TaskRecord

MAX_ROWS = 50


def add_arguments(parser: ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument("job", metavar="JOB", help="a job id, as `submit` prints it")
    parser.add_argument("--json", action="store_true", help="print the records as JSON")
    add_coordinator(parser)


def run(args: Namespace, parser: ArgumentParser) -> int:
    """Print the job and return 0."""
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


def job_text(job: JobRecord) -> str:
    """Return a job in a line or two."""
    counts = ", ".join(f"{number} {state}" for state, number in sorted(job.tasks.items()) if number)
    lines = [f"{job.job_id}  {job.state}  {plain(job.name)}  ({counts})"]
    if job.reason:
        lines.append(f"reason: {plain(job.reason)}")
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
