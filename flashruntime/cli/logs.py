"""Show what a job has printed: the last lines of the newest attempt of each task."""

import sys
from argparse import ArgumentParser, Namespace
from pathlib import Path

from flashruntime.cli.common import JOB_HELP, add_coordinator, at_least, connect, local_run
from flashruntime.errors import NotFound
from flashruntime.sdk.journal import read_run
from flashruntime.sdk.run import logs_of


def add_arguments(parser: ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument("job", metavar="JOB", help=JOB_HELP)
    parser.add_argument(
        "--tail", type=at_least(0), default=200, metavar="N", help="lines (default: 200)"
    )
    parser.add_argument(
        "--task", type=at_least(0), metavar="I", help="this task only, counted from 0"
    )
    parser.add_argument(
        "--attempt", type=at_least(1), metavar="N", help="this attempt, counted from 1"
    )
    add_coordinator(parser)


def run(args: Namespace, parser: ArgumentParser) -> int:
    """Print the output and return 0."""
    if (place := local_run(args)) is not None:
        text = _local(place, args)
    else:
        with connect(args, parser) as client:
            text = client.logs(args.job, args.tail, args.task, args.attempt)
    sys.stdout.write(text if text.endswith("\n") or not text else text + "\n")
    return 0


def _local(place: Path, args: Namespace) -> str:
    run = read_run(place)
    attempts = [] if run is None else run.attempts
    if args.attempt is not None:
        attempts = [attempt for attempt in attempts if attempt.number == args.attempt - 1]
    if not attempts:
        raise NotFound(f"{place} has no such attempt; `flashruntime status {place}` lists them")
    return logs_of(place, attempts, args.tail, args.task)
