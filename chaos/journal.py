"""The undo log of a run: every step is on disk before the fault that makes it necessary.

A line is either {"promise": undo} or {"done": undo_id}; a line torn by a crash is left out, for a
promise that was not written whole was not relied upon.
"""

import json
import os
import threading
from collections.abc import Callable
from dataclasses import asdict
from functools import partial
from pathlib import Path

from chaos.model import JsonValue, Undo

NAME = "journal.jsonl"
UNDO_S = 120.0


class Journal:
    """The journal of one run; `promise` and `done` return when the line is on disk."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._open: dict[str, Undo] = {}
        is_new = not path.exists()
        self._fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)
        if is_new:
            _sync_folder(path.parent)
        elif path.stat().st_size and not path.read_bytes().endswith(b"\n"):
            os.write(self._fd, b"\n")

    def promise(self, undo: Undo) -> None:
        """Record an undo."""
        self._append({"promise": asdict(undo)})
        self._open[undo.undo_id] = undo

    def done(self, undo_id: str) -> None:
        """Record that an undo was carried out and verified."""
        self._open.pop(undo_id, None)
        self._append({"done": undo_id})

    def open(self) -> tuple[Undo, ...]:
        """Return what was promised here and not done, newest first, wherever the file is now."""
        return tuple(reversed(self._open.values()))

    def close(self) -> None:
        """Close the file; it is durable already."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def _append(self, line: dict[str, JsonValue]) -> None:
        data = (json.dumps(line, allow_nan=False, sort_keys=True) + "\n").encode()
        while data:
            data = data[os.write(self._fd, data) :]
        os.fsync(self._fd)


def open_undos(path: Path) -> tuple[Undo, ...]:
    """Return what was promised and not done, newest first: the order in which to undo."""
    promised: dict[str, Undo] = {}
    for line in path.read_text(encoding="utf-8", errors="replace").splitlines():
        entry = _parse(line)
        if isinstance(undo := entry.get("promise"), dict):
            found = _undo(undo)
            if found is not None:
                promised[found.undo_id] = found
        elif isinstance(done := entry.get("done"), str):
            promised.pop(done, None)
    return tuple(reversed(promised.values()))


def undo_all(
    undos: tuple[Undo, ...], carry_out: Callable[[Undo], None], done: Callable[[Undo], None]
) -> tuple[str, ...]:
    """Carry out every undo and return what failed: one that fails or hangs stops no other."""
    failures = []
    for undo in undos:
        problem = _with_deadline(partial(_undo_one, undo, carry_out, done), UNDO_S)
        if problem is not None:
            failures.append(f"{undo.action} for {undo.fault_id or 'the stack'}: {problem}")
    return tuple(failures)


def _undo_one(undo: Undo, carry_out: Callable[[Undo], None], done: Callable[[Undo], None]) -> None:
    carry_out(undo)
    done(undo)


def _with_deadline(step: Callable[[], None], timeout_s: float) -> str | None:
    """Run `step` in a thread of its own; return what went wrong, None where nothing did."""
    problems = ["no end within its deadline"]

    def run() -> None:
        try:
            step()
        except Exception as error:  # noqa: BLE001 (thread boundary: told to whoever waits)
            problems.append(f"{type(error).__name__}: {error}")
        else:
            problems.clear()

    thread = threading.Thread(target=run, name="chaos-undo", daemon=True)
    thread.start()
    thread.join(timeout_s)
    return problems[-1] if problems else None


def _parse(line: str) -> dict[str, JsonValue]:
    try:
        entry = json.loads(line)
    except ValueError:
        return {}
    return entry if isinstance(entry, dict) else {}


def _undo(data: dict[str, JsonValue]) -> Undo | None:
    fault_id, args = data.get("fault_id"), data.get("args")
    if not all(isinstance(data.get(name), str) for name in ("undo_id", "run_id", "action")):
        return None
    return Undo(
        undo_id=str(data["undo_id"]),
        run_id=str(data["run_id"]),
        fault_id=fault_id if isinstance(fault_id, str) else None,
        action=str(data["action"]),
        args=args if isinstance(args, dict) else {},
    )


def _sync_folder(folder: Path) -> None:
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
