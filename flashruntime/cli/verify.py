"""Verify the checkpoints of a tree, or of every tree below a directory. Exit code 0: each tree has
a valid checkpoint and none is corrupt."""

from argparse import ArgumentParser, Namespace
from collections.abc import Iterator
from pathlib import Path

from flashruntime.checkpoint import Kind, StepReport, inspect
from flashruntime.cli.common import plain, size_text, table
from flashruntime.errors import NotFound

HEADER = ["CHECKPOINT", "KIND", "SIZE", "REASON"]


def add_arguments(parser: ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument(
        "directory", type=Path, metavar="DIR", help="a checkpoint tree, or above it"
    )


def run(args: Namespace, _: ArgumentParser) -> int:
    """Print each checkpoint with its worth and the reason; return 1 if a tree is not sound."""
    sound = True
    found = False
    for tree in _trees(args.directory):
        reports = inspect(tree)
        if not reports:
            continue
        found = True
        print(table([HEADER] + [_row(tree, report) for report in reports]))
        kinds = {report.kind for report in reports}
        sound = sound and Kind.VALID in kinds and Kind.CORRUPT not in kinds
    if not found:
        raise NotFound(f"{args.directory} holds no checkpoints (directories named step-000040)")
    return 0 if sound else 1


def _trees(directory: Path) -> Iterator[Path]:
    """The directory itself if it is a tree or empty of trees, else the trees below it."""
    below = sorted({path.parent for path in directory.rglob("step-*") if path.is_dir()})
    tops = [path for path in below if not any(part.startswith(".") for part in path.parts)]
    yield from tops or [directory]


def _row(tree: Path, report: StepReport) -> list[str]:
    size = "-" if report.size_bytes is None else size_text(report.size_bytes)
    reason = f"{report.part}: {report.reason}" if report.part else report.reason
    return [plain(str(tree / report.path)), report.kind, size, plain(reason)]
