"""Submit a command as a job. One word is split as a POSIX shell would do it, but no shell runs it;
give several words after `--` to have them taken as they are. `{name}` in an argument is replaced
by the parameter of that name. Without a coordinator it runs on this machine, to its end."""

import os
import sys
from argparse import ArgumentParser, Namespace
from pathlib import Path
from typing import TYPE_CHECKING
from uuid import uuid4

from flashruntime.cli import local, source, watch
from flashruntime.cli.command import job_spec, split
from flashruntime.cli.common import (
    add_coordinator,
    at_least,
    connect,
    duration_s,
    size_text,
    url_of,
)
from flashruntime.protocol.jobs import DEFAULT_LEASE_S, InputFile

if TYPE_CHECKING:
    from flashruntime.client import CoordinatorClient


def add_arguments(parser: ArgumentParser) -> None:
    """Declare the arguments."""
    add = parser.add_argument
    add("command", nargs="+", metavar="CMD", help="the command, quoted, or its words after `--`")
    add_coordinator(parser)
    add(
        "--source",
        type=Path,
        metavar="DIR",
        help="directory whose files the job finds where it runs",
    )
    add("--name", help="name of the job (default: that of the script or program)")
    add(
        "--max-restarts",
        type=at_least(0),
        default=2,
        metavar="N",
        help="restarts after errors (default: 2)",
    )
    add(
        "--output", action="append", default=[], metavar="PATH", help="file that the job must write"
    )
    add("--env", action="append", default=[], metavar="K=V", help="variable of the job")
    add("--param", action="append", default=[], metavar="K=V", help="value of {K} in the command")
    add("--task-params", metavar="FILE", help="JSON list of objects: one task for each")
    add(
        "--need",
        action="append",
        default=[],
        metavar="K=V",
        help="what a task needs of a coordinator's worker: cpus=2, memory=4G, accelerators=1, "
        "label.KEY=VALUE",
    )
    add("--lease-seconds", type=float, default=DEFAULT_LEASE_S, metavar="S", help="default: 30")
    add("--no-progress", type=duration_s, metavar="S", help="restart an attempt silent for so long")
    add("--watch", action="store_true", help="follow the job and exit with 0 if it succeeds")
    local.add_arguments(parser)


def run(args: Namespace, parser: ArgumentParser) -> int:
    """Submit, print the job id, and with --watch follow it; 1 if it does not succeed."""
    argv = split(args.command)
    if args.output_dir is not None or url_of(args) is None:
        return local.run(args, argv, parser)
    draft = job_spec(args, argv, [])
    with connect(args, parser) as client:
        inputs = _upload(client, args.source) if args.source else []
        if args.source is None:
            _point_at_source(argv)
        spec = job_spec(args, argv, inputs) if inputs else draft
        job = client.submit(spec, uuid4().hex)
        print(job.job_id, flush=True)
        if not args.watch:
            return 0
        return watch.follow(client, job.job_id)


def _upload(client: "CoordinatorClient", root: Path) -> list[InputFile]:
    files = source.scan(root)
    total = sum(file.size_bytes for file in files)
    print(f"uploading {len(files)} files, {size_text(total)}, from {root}", file=sys.stderr)
    return source.upload(client, files)


def _point_at_source(argv: list[str]) -> None:
    here = [word for word in argv if not word.startswith("/") and os.path.isfile(word)]  # noqa: PTH113 (Path raises for a word that is too long for a name)
    if here:
        text = f"{here[0]} is a file here; a worker has it only with --source ."
        print(f"flashruntime submit: note: {text}", file=sys.stderr)
