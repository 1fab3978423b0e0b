"""Cordon nodes and let them checkpoint and hand back their tasks, at no cost to these.
`uncordon` ends it."""

import sys
from argparse import ArgumentParser, Namespace
from threading import Event
from time import monotonic

from flashruntime.cli.common import connect, duration_s
from flashruntime.cli.orders import add_nodes, carry_out
from flashruntime.protocol.nodes import NodeDuty, NodeOrder

LOOK_S = 0.25


def add_arguments(parser: ArgumentParser) -> None:
    """Declare the arguments."""
    add_nodes(parser)
    parser.add_argument("--wait", action="store_true", help="return when they run no task any more")
    parser.add_argument(
        "--timeout", type=duration_s, metavar="S", help="with --wait: give up after so long, with 1"
    )


def run(args: Namespace, parser: ArgumentParser) -> int:
    """Drain each node and return 0; with --wait 1 if some are not drained in time."""
    code = carry_out(args, parser, NodeOrder.DRAIN)
    return _wait(args, parser) if args.wait else code


def _wait(args: Namespace, parser: ArgumentParser) -> int:
    """Look again and again, for the coordinator tells of a node only when it is asked."""
    until = float("inf") if args.timeout is None else monotonic() + args.timeout
    left, pause = set(args.node), Event()
    with connect(args, parser) as client:
        while left:
            for node in client.nodes():
                if node.node_id in left and node.duty is not NodeDuty.DRAINING:
                    left.discard(node.node_id)
                    print(f"{node.node_id}  {node.duty}", flush=True)
            if left and monotonic() > until:
                names = ", ".join(sorted(left))
                print(f"flashruntime drain: still running tasks: {names}", file=sys.stderr)
                return 1
            if left:
                pause.wait(LOOK_S)
    return 0
