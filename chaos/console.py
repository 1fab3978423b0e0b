"""What `python -m chaos` shows: rich tables on a terminal, plain lines everywhere else."""

import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import TextIO

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

COLOURS = {
    "valid": "green",
    "landed": "green",
    "violated": "bold red",
    "unknown": "yellow",
    "missed": "yellow",
    "inconclusive": "yellow",
    "cannot run": "bold red",
}


class Screen:
    """Progress and tables on one stream."""

    def __init__(self, stream: TextIO | None = None) -> None:
        self._console = Console(
            file=stream or sys.stdout, highlight=False, soft_wrap=True, emoji=False, markup=False
        )

    def say(self, text: str) -> None:
        """Show one line."""
        with _reader_may_be_gone():
            self._console.print(Text(text))

    def table(self, heads: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
        """Show a table; off a terminal, columns of plain text."""
        listed = [list(map(str, row)) for row in rows]
        if not self._console.is_terminal:
            for line in plain_lines(heads, listed):
                self.say(line)
            return
        table = Table(*heads, box=box.SIMPLE_HEAD)
        for row in listed:
            table.add_row(*(Text(cell, style=COLOURS.get(cell, "")) for cell in row))
        with _reader_may_be_gone():
            self._console.print(table, soft_wrap=False)


@contextmanager
def _reader_may_be_gone() -> Iterator[None]:
    """Go on where nobody reads any more: rich ends the process with 1, which means violated."""
    try:
        yield
    except (OSError, SystemExit):
        return


def plain_lines(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """Return a table as aligned lines."""
    lines = [list(heads), *rows]
    widths = [max(len(line[column]) for line in lines) for column in range(len(heads))]
    return [
        "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip()
        for line in lines
    ]
