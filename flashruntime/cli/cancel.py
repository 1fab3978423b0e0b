"""Cancel a job; a job that has ended stays as it is."""

from argparse import ArgumentParser, Namespace

from flashruntime.cli.common import JOB_HELP, add_coordinator, connect, local_run
from flashruntime.sdk.home import request_cancel


def add_arguments(parser: ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument("job", metavar="JOB", help=JOB_HELP)
    add_coordinator(parser)


def run(args: Namespace, parser: ArgumentParser) -> int:
    """Cancel, print the job's state, and return 0."""
    if (place := local_run(args)) is not None:
        request_cancel(place)
        print(f"{place}  asked to end")
        return 0
    with connect(args, parser) as client:
        job = client.cancel(args.job)
    print(f"{job.job_id}  {job.state}")
    return 0
