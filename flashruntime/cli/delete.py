"""Delete jobs that have ended: their tasks, events, output and artifacts. `fetch` keeps a copy."""

from argparse import ArgumentParser, Namespace

from flashruntime.cli.common import add_coordinator, connect


def add_arguments(parser: ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument("job", nargs="+", metavar="JOB", help="a job, as `flashruntime jobs`")
    add_coordinator(parser)


def run(args: Namespace, parser: ArgumentParser) -> int:
    """Delete each job and say so; return 0."""
    with connect(args, parser) as client:
        for job_id in args.job:
            client.delete(job_id)
            print(f"{job_id}  DELETED", flush=True)
    return 0
