"""List the workers of a coordinator: what each is to do, what it runs, and what it offers."""

import json
from argparse import ArgumentParser, Namespace

from flashruntime.cli.common import add_coordinator, connect, plain, size_text, table
from flashruntime.cli.jobs import age_text
from flashruntime.protocol.nodes import NodeRecord

HEADER = ["NODE", "STATUS", "DUTY", "RUNNING", "CPUS", "MEMORY", "ACCELERATORS", "HEARD", "LABELS"]


def add_arguments(parser: ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument("--json", action="store_true", help="print the records as JSON")
    add_coordinator(parser)


def run(args: Namespace, parser: ArgumentParser) -> int:
    """Print a line for each node and return 0."""
    with connect(args, parser) as client:
        found = client.nodes()
    if args.json:
        print(json.dumps([node.model_dump(mode="json") for node in found], indent=2))
    else:
        print(table([HEADER] + [_row(node) for node in found]))
    return 0


def _row(node: NodeRecord) -> list[str]:
    has = node.capabilities
    labels = ",".join(f"{key}={value}" for key, value in sorted(has.labels.items()))
    return [
        node.node_id,
        node.status,
        node.duty,
        f"{node.running}/{has.slots}",
        f"{has.cpus:g}",
        size_text(has.memory_bytes),
        str(has.accelerators),
        age_text(node.idle_s),
        plain(labels) or "-",
    ]
