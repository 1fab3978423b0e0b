"""`submit` without a coordinator: the run goes on here, in the foreground."""

import signal
import sys
from argparse import ArgumentParser, Namespace
from pathlib import Path

from flashruntime.cli.command import pairs, task_params
from flashruntime.cli.common import at_least, duration_s, plain
from flashruntime.protocol.jobs import JobState
from flashruntime.sdk.follow import Follower
from flashruntime.sdk.run import Run
from flashruntime.sdk.submit import submit
from flashruntime.sdk.workload import CommandWorkload, Resources

FAILED_LOG_LINES = 40


def add_arguments(parser: ArgumentParser) -> None:
    """Declare the arguments that only a local run has."""
    group = parser.add_argument_group("on this machine (without --coordinator)")
    add = group.add_argument
    add("--output-dir", type=Path, metavar="DIR", help="where the run keeps its files; go on there")
    add("--parallel", type=at_least(1), metavar="N", help="tasks at once (default: one a core)")
    add("--timeout", type=duration_s, metavar="S", help="end the run after so many seconds")
    add("--nproc", type=at_least(1), default=1, metavar="N", help="ranks of a task, under torchrun")


def run(args: Namespace, argv: list[str], parser: ArgumentParser) -> int:
    """Run to the end; return 0 if it succeeds, 1 if not, and say where everything is."""
    if args.coordinator is not None:
        parser.error("give either --coordinator or --output-dir, not both")
    workload = CommandWorkload(
        argv,
        source=args.source or ".",
        env=pairs(args.env, "--env"),
        outputs=list(dict.fromkeys(args.output)) or None,
        task_params=task_params(args),
        resources=Resources(nproc_per_node=args.nproc),
        no_progress_s=args.no_progress,
    )
    signal.signal(signal.SIGTERM, _interrupt)
    started = submit(
        workload,
        args.output_dir,
        wait=False,
        max_restarts=args.max_restarts,
        watch=args.watch or None,
        parallel=args.parallel,
        timeout_s=args.timeout,
    )
    print(started.output_dir, flush=True)
    return _finish(started, show=args.watch and args.task_params is None)


def _finish(started: Run, *, show: bool) -> int:
    try:
        with Follower(started, sys.stdout.buffer if show else None):
            state = started.wait()
    except KeyboardInterrupt:
        print("flashruntime submit: ending the run; once more to leave at once", file=sys.stderr)
        state = started.cancel()
    print(f"{started.job_id}  {state}")
    if state is JobState.SUCCEEDED:
        return 0
    print(f"reason: {plain(started.reason)}")
    if not show:
        print(started.logs(FAILED_LOG_LINES))
    return 1


def _interrupt(_number: int, _frame: object) -> None:
    raise KeyboardInterrupt
