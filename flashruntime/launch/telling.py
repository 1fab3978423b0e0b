"""What a launched process says: its step file, and events as lines on stdout and in a file.

Saves run in a thread of their own. What that thread has to say goes to the files at once, and to
stdout when the thread that trains comes by: printed from another thread, a line could land in the
middle of one that the job prints.
"""

import contextlib
import os
import sys
import threading
import weakref
from pathlib import Path

from pydantic import JsonValue

from flashruntime.protocol.base import strict_dumps

EVENTS_NAME = "events.jsonl"


class Teller:
    """Speaks for one process; what cannot be written is no error."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._sequence = 0
        self._unprinted: list[str] = []
        weak = weakref.WeakMethod(self._renew)
        os.register_at_fork(after_in_child=lambda: (renew := weak()) and renew())

    def _renew(self) -> None:
        """A child has no thread that could release the lock, and nothing to say for its parent."""
        self._lock = threading.Lock()
        self._unprinted = []

    def steps(self, path: Path | None, fields: dict[str, int | None]) -> None:
        """Put `fields` into the step file at `path`."""
        if path is not None:
            with self._lock, contextlib.suppress(OSError):
                replace_file(path, strict_dumps(fields))

    def note(self, step_file: Path | None, name: str, fields: dict[str, JsonValue]) -> None:
        """Append an event to events.jsonl beside the step file; it is printed by `say`."""
        with self._lock:
            self._sequence += 1
            line = strict_dumps({"event": name, "seq": self._sequence, **fields}) + "\n"
            self._unprinted.append(line)
            if step_file is not None:
                path = step_file.with_name(EVENTS_NAME)
                with contextlib.suppress(OSError), path.open("a", encoding="utf-8") as file:
                    file.write(line)

    def say(self) -> None:
        """Print what has not been printed; for the thread that trains."""
        if self._unprinted:
            with self._lock:
                lines, self._unprinted = self._unprinted, []
            with contextlib.suppress(OSError, ValueError):
                sys.stdout.write("".join(lines))
                sys.stdout.flush()


def replace_file(path: Path, text: str) -> None:
    """Put `text` at `path` so that a reader sees the old or the new content, never a mixture."""
    scratch = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    scratch.write_text(text + "\n", encoding="utf-8")
    scratch.replace(path)
