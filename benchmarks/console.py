"""Progress: a live line on a terminal where rich is installed, plain lines everywhere else."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from importlib import import_module
from typing import Any, TextIO


class Screen:
    """One stream; passing progress is shown only where it can be overwritten."""

    def __init__(self, stream: TextIO | None = None) -> None:
        self._stream = stream or sys.stdout
        self._status: Any = None

    @contextmanager
    def live(self) -> Iterator[None]:
        """Keep a line of progress at the bottom for as long as the block runs."""
        rich = None
        if self._stream.isatty():
            with suppress(ImportError):
                rich = import_module("rich.console")
        if rich is None:
            yield
            return
        console = rich.Console(file=self._stream, highlight=False, markup=False)
        with console.status("measuring") as self._status:
            yield
        self._status = None

    def say(self, text: str) -> None:
        """Show a line."""
        if self._status is not None:
            self._status.console.print(text)
            return
        with suppress(OSError, ValueError):
            self._stream.write(text + "\n")
            self._stream.flush()

    def progress(self, text: str) -> None:
        """Show what is going on, where that can be overwritten."""
        if self._status is not None:
            self._status.update(text.replace("[", r"\["))
