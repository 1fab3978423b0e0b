"""Give nodes tasks again, after `cordon` or `drain`."""

from argparse import ArgumentParser, Namespace

from flashruntime.cli.orders import add_nodes, carry_out
from flashruntime.protocol.nodes import NodeOrder


def add_arguments(parser: ArgumentParser) -> None:
    """Declare the arguments."""
    add_nodes(parser)


def run(args: Namespace, parser: ArgumentParser) -> int:
    """Uncordon each node and return 0."""
    return carry_out(args, parser, NodeOrder.UNCORDON)
