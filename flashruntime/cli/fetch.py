"""Download the accepted outputs of a job into DIR/<index of the task>/<path>, each verified by its
sha256. A file that is there already is kept, and one with other content is never replaced."""

import hashlib
import sys
from argparse import ArgumentParser, Namespace
from pathlib import Path

from flashruntime.cli.common import add_coordinator, connect, local_run, size_text
from flashruntime.cli.status import job_text
from flashruntime.errors import Conflict, InvalidInput, NotFound
from flashruntime.protocol.jobs import JobState
from flashruntime.protocol.tasks import OutputFile, TaskRecord


def add_arguments(parser: ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument("job", metavar="JOB", help="a job id")
    parser.add_argument("directory", type=Path, metavar="DIR", help="where the files go")
    add_coordinator(parser)


def run(args: Namespace, parser: ArgumentParser) -> int:
    """Download what is missing, say how much that was, and return 0."""
    if (place := local_run(args)) is not None:
        raise InvalidInput(f"{place} is a local run: its outputs are there already")
    with connect(args, parser) as client:
        job = client.job(args.job)
        wanted = targets(args.directory, client.tasks(args.job))
        if not wanted:
            raise NotFound(f"no accepted outputs: {job_text(job)}")
        missing = {to: output for to, output in wanted.items() if not _is_there(to, output)}
        size_bytes = 0
        for to, output in missing.items():
            to.parent.mkdir(parents=True, exist_ok=True)
            size_bytes += client.get_artifact(output.key, to, output.sha256).size_bytes
    kept = len(wanted) - len(missing)
    there = f"; {kept} were there already" if kept else ""
    files = "1 file" if len(missing) == 1 else f"{len(missing)} files"
    print(f"{files}, {size_text(size_bytes)}, in {args.directory}{there}")
    if job.state is not JobState.SUCCEEDED:
        print(f"flashruntime fetch: note: not of every task: {job_text(job)}", file=sys.stderr)
    return 0


def targets(directory: Path, tasks: list[TaskRecord]) -> dict[Path, OutputFile]:
    """Return which output goes where."""
    return {
        directory / str(task.index) / output.path: output
        for task in tasks
        for output in task.outputs
    }


def _is_there(to: Path, output: OutputFile) -> bool:
    """Whether the file has this content already; Conflict if it has another."""
    if not to.exists() and not to.is_symlink():
        return False
    if to.is_file():
        with to.open("rb") as file:
            if hashlib.file_digest(file, "sha256").hexdigest() == output.sha256:
                return True
    raise Conflict(
        f"{to} is there with other content than sha256 {output.sha256}; move it away, or name "
        "another directory"
    )
