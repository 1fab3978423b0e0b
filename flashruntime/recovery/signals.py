"""What the evidence of an ended attempt says, read without guessing."""

import re
import signal
from dataclasses import dataclass

from flashruntime.protocol.failures import EndedBy, Evidence

MAX_QUOTE = 300
_LAST_LINE = re.compile(
    r"(?P<type>[A-Za-z_][\w.]*?(?:Error|Exception|Interrupt|Timeout))(?:: (?P<text>.*))?"
)
_FRAME = re.compile(r'  File ".+", line \d+')
_ERRNO = re.compile(r"\[Errno (\d+)\]|\(os error (\d+)\)")


@dataclass(frozen=True, slots=True)
class Raised:
    """An uncaught exception: the last part of its type's name, and its message."""

    type_name: str
    message: str

    def quote(self) -> str:
        """Return the exception as Python prints it, cut to a readable length."""
        return f"{self.type_name}: {self.message}"[:MAX_QUOTE].rstrip(": ")

    @property
    def errno(self) -> int | None:
        """The operating system's error number, where the message names one."""
        found = _ERRNO.match(self.message) or _ERRNO.search(self.message)
        return None if found is None else int(found[1] or found[2])


def raised(evidence: Evidence) -> Raised | None:
    """Return the error that ended the process: from its error file, else from the log's very end.

    A log counts only for a process that exited, and only if its last line closes a traceback.
    """
    if evidence.error_type:
        return Raised(evidence.error_type.rsplit(".", 1)[-1], evidence.message or "")
    if evidence.ended_by is not EndedBy.EXIT or not evidence.exit_code:
        return None
    lines = (evidence.log_tail or "").rstrip().splitlines()
    last = _LAST_LINE.fullmatch(lines[-1]) if lines else None
    if last is None or not _closes_traceback(lines[:-1]):
        return None
    return Raised(last["type"].rsplit(".", 1)[-1], last["text"] or "")


def _closes_traceback(lines: list[str]) -> bool:
    """Return whether the lines end in an unindented traceback header and its indented frames."""
    frames = 0
    for line in reversed(lines):
        if line == "Traceback (most recent call last):":
            return frames > 0
        if not line.startswith("  "):
            return False
        frames += bool(_FRAME.match(line))
    return False


def fatal_signal(evidence: Evidence) -> int | None:
    """Return the signal that ended the process, also as a shell reports it (128 + number)."""
    if evidence.ended_by is EndedBy.SIGNAL:
        return evidence.signal
    code = evidence.exit_code or 0
    if evidence.ended_by is EndedBy.EXIT and not evidence.error_type and 128 < code < 160:
        return code - 128
    return None


def signal_name(number: int | None) -> str:
    """Return a signal's name, or its number where it has none."""
    try:
        return signal.Signals(number or 0).name
    except ValueError:
        return f"signal {number}"
