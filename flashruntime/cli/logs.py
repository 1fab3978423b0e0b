"""Show what a job has printed: the last lines of the newest attempt of each task."""

import sys
from argparse import ArgumentParser, Namespace

from flashruntime.cli.common import add_coordinator, connect


def add_arguments(parser: ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument("job", metavar="JOB", help="a job id, as `submit` prints it")
    parser.add_argument("--tail", type=int, default=200, metavar="N", help="lines (default: 200)")
    parser.add_argument("--task", type=int, metavar="I", help="this task only, counted from 0")
    parser.add_argument("--attempt", type=int, metavar="N", help="this attempt, counted from 1")
    add_coordinator(parser)


def run(args: Namespace, parser: ArgumentParser) -> int:
    """Print the output and return 0."""
    with connect(args, parser) as client:
        text = client.logs(args.job, args.tail, args.task, args.attempt)
    sys.stdout.write(text if text.endswith("\n") or not text else text + "\n")
    return 0
