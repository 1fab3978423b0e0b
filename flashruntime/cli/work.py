"""Run a worker: claim tasks, run them, report them, until SIGTERM or SIGINT."""

import os
from argparse import ArgumentParser, Namespace

from flashruntime.cli.common import URL_VARIABLE, add_coordinator, named_url
from flashruntime.client import CoordinatorClient
from flashruntime.config import WorkerSettings
from flashruntime.launch.local import LocalLauncher
from flashruntime.service import jsonlog
from flashruntime.worker.agent import Agent, stop_on_signals
from flashruntime.worker.control import StopRequest, leave_in_time
from flashruntime.worker.ports import Tools

MAX_SPARE_S = 0.5


def add_arguments(parser: ArgumentParser) -> None:
    """Declare the arguments."""
    add_coordinator(parser)
    parser.add_argument(
        "--keep-attempts", action="store_true", help="keep the directories of finished attempts"
    )


def run(args: Namespace, _: ArgumentParser) -> int:
    """Work until asked to leave, and return 0; the last of the notice is kept to clean up in."""
    url = named_url(args)
    named = {} if url is None else {URL_VARIABLE: url}
    settings = WorkerSettings.from_env({**os.environ, **named})
    spare_s = min(MAX_SPARE_S, settings.notice_s / 10)
    stop = StopRequest(settings.notice_s - spare_s)
    leave_in_time(stop, spare_s, lambda: os._exit(0))
    with jsonlog.running(level=settings.log_level):
        stop_on_signals(stop)
        with CoordinatorClient(settings.coordinator_url) as client:
            tools = Tools(
                client=client,
                connect=lambda timeout_s: CoordinatorClient(
                    settings.coordinator_url, timeout_s=timeout_s
                ),
                launcher=LocalLauncher(adopt_orphans=True),
            )
            Agent(settings, tools, stop, os.environ, keep_attempts=args.keep_attempts).run()
    return 0
