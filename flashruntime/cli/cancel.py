"""Cancel a job; a job that has ended stays as it is."""

from argparse import ArgumentParser, Namespace

from flashruntime.cli.common import add_coordinator, connect


def add_arguments(parser: ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument("job", metavar="JOB", help="a job id, as `submit` prints it")
    add_coordinator(parser)


def run(args: Namespace, parser: ArgumentParser) -> int:
    """Cancel, print the job's state, and return 0."""
    with connect(args, parser) as client:
        job = client.cancel(args.job)
    print(f"{job.job_id}  {job.state}")
    return 0
