"""What `cordon`, `uncordon` and `drain` share."""

from argparse import ArgumentParser, Namespace

from flashruntime.cli.common import add_coordinator, connect
from flashruntime.protocol.nodes import NodeOrder


def add_nodes(parser: ArgumentParser) -> None:
    """Add the arguments that name nodes and their coordinator."""
    parser.add_argument("node", nargs="+", metavar="NODE", help="a node, as `flashruntime nodes`")
    add_coordinator(parser)


def carry_out(args: Namespace, parser: ArgumentParser, order: NodeOrder) -> int:
    """Give an order to each node and print its duty; return 0."""
    with connect(args, parser) as client:
        for node_id in args.node:
            print(f"{node_id}  {client.order_node(node_id, order).duty}", flush=True)
    return 0
