"""List the jobs of a coordinator, newest first."""

import json
from argparse import ArgumentParser, Namespace
from datetime import UTC, datetime

from flashruntime.cli.common import add_coordinator, at_least, connect, plain, table
from flashruntime.protocol.jobs import JobRecord
from flashruntime.protocol.tasks import TaskState

HEADER = ["JOB", "NAME", "STATE", "TASKS", "AGE"]
_UNITS = ((86_400, "d"), (3_600, "h"), (60, "m"))


def add_arguments(parser: ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument(
        "--limit", type=at_least(1), default=50, metavar="N", help="jobs to show (default: 50)"
    )
    parser.add_argument("--json", action="store_true", help="print the records as JSON")
    add_coordinator(parser)


def run(args: Namespace, parser: ArgumentParser) -> int:
    """Print a line for each job and return 0."""
    with connect(args, parser) as client:
        found = client.jobs(args.limit + 1)
    shown = found[: args.limit]
    if args.json:
        print(json.dumps([job.model_dump(mode="json") for job in shown], indent=2))
        return 0
    now = datetime.now(UTC)
    print(table([HEADER] + [_row(job, now) for job in shown]))
    if len(found) > len(shown):
        print(f"... and older ones: --limit {args.limit * 2}")
    return 0


def _row(job: JobRecord, now: datetime) -> list[str]:
    done = f"{job.tasks.get(TaskState.COMPLETED, 0)}/{sum(job.tasks.values())}"
    age = age_text((now - job.created_at).total_seconds())
    return [job.job_id, plain(job.name)[:60], job.state, done, age]


def age_text(age_s: float) -> str:
    """Return an age in its largest unit; 0 where the clocks disagree about its sign."""
    for unit_s, unit in _UNITS:
        if age_s >= unit_s:
            return f"{age_s // unit_s:.0f}{unit}"
    return f"{max(0.0, age_s):.0f}s"
