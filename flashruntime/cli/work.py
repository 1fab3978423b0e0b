"""Run a worker: claim tasks, run them side by side, report them, until SIGTERM or SIGINT."""

import os
from argparse import ArgumentParser, Namespace
from dataclasses import replace

from flashruntime.cli.common import URL_VARIABLE, add_coordinator, at_least, named_url
from flashruntime.client import CoordinatorClient
from flashruntime.config import WorkerSettings, labels, token_source
from flashruntime.launch.local import LocalLauncher
from flashruntime.service import jsonlog
from flashruntime.worker.agent import Agent, stop_on_signals
from flashruntime.worker.checkpoint_client import CheckpointClient
from flashruntime.worker.control import StopRequest, leave_in_time
from flashruntime.worker.ports import Tools
from flashruntime.worker.shared_root import relays_checkpoints

MAX_SPARE_S = 0.5
SLOTS_VARIABLE = "FLASHML_SLOTS"
LABELS_VARIABLE = "FLASHML_LABELS"


def add_arguments(parser: ArgumentParser) -> None:
    """Declare the arguments."""
    add_coordinator(parser)
    parser.add_argument(
        "--slots",
        type=at_least(1),
        metavar="N",
        help=f"tasks to run at once (default: ${SLOTS_VARIABLE}, or 1)",
    )
    parser.add_argument(
        "--label",
        action="append",
        default=[],
        metavar="K=V",
        help=f"label that jobs can ask for; more than one may be given (beside ${LABELS_VARIABLE})",
    )
    parser.add_argument(
        "--keep-attempts", action="store_true", help="keep the directories of finished attempts"
    )


def run(args: Namespace, _: ArgumentParser) -> int:
    """Work until asked to leave, and return 0; the last of the notice is kept to clean up in."""
    settings = _settings(args)
    token = token_source()
    spare_s = min(MAX_SPARE_S, settings.notice_s / 10)
    stop = StopRequest(settings.notice_s - spare_s)
    leave_in_time(stop, spare_s, lambda: os._exit(0))
    with jsonlog.running(level=settings.log_level):
        stop_on_signals(stop)
        with CheckpointClient(settings.coordinator_url, token=token) as client:
            tools = Tools(
                client=client,
                connect=lambda timeout_s: CoordinatorClient(
                    settings.coordinator_url, timeout_s=timeout_s, token=token
                ),
                launcher=LocalLauncher(adopt_orphans=True),
                checkpoints=client if relays_checkpoints(settings) else None,
            )
            Agent(settings, tools, stop, os.environ, keep_attempts=args.keep_attempts).run()
    return 0


def _settings(args: Namespace) -> WorkerSettings:
    """Read the settings; what the command line gives wins over the environment."""
    url, named = named_url(args), {}
    if url is not None:
        named[URL_VARIABLE] = url
    if args.slots is not None:
        named[SLOTS_VARIABLE] = str(args.slots)
    settings = WorkerSettings.from_env({**os.environ, **named})
    given = labels(args.label, "--label")
    return replace(settings, labels={**settings.labels, **given})
