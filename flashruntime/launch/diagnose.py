"""Plain words for a process that did not start, or that ended for a reason outside its log."""

import errno
import json
import os
import re
import shutil
from pathlib import Path

from flashruntime.launch.files import open_regular
from flashruntime.launch.spec import LaunchSpec
from flashruntime.protocol.failures import Decision, EndedBy, Evidence, FailureClass

MAX_ERROR_FILE_BYTES = 256 * 1024
MAX_WORDS = 200
_SHELL_NOT_FOUND = 127
_STYLES = re.compile(r"\x1b\[[0-?]*[ -/]*[@-~]")
_CRLF = "{script} has Windows line endings (CRLF) in its first line: convert it with `dos2unix`"


def explain_spawn_error(spec: LaunchSpec, number: int | None, text: str) -> str:
    """Return a message that names the executable, the rule and the remedy."""
    name, path, text = spec.argv[0], _valid(spec.env.get("PATH", os.defpath)), _valid(text)
    if number in {errno.ENOENT, errno.ENOTDIR}:
        return _explain_missing(spec, path)
    messages = {
        errno.EACCES: f"not executable: {name} ({text}); give the file its execute permission",
        errno.ENOEXEC: f"{name} is neither a program nor a script with a '#!' line; add that line",
        errno.E2BIG: f"arguments and environment of {name} are too long ({text}); use a file",
    }
    return messages.get(number or 0, f"cannot start {name}: {text} (PATH={path})")


def _explain_missing(spec: LaunchSpec, path: str) -> str:
    name, script = spec.argv[0], _script(spec)
    if not spec.cwd.is_dir():
        return f"working directory not found: {_valid(str(spec.cwd))}"
    if script is None:
        return f"executable not found: {name} (PATH={path})"
    first = _first_line(script)
    if first.endswith(b"\r"):
        return _CRLF.format(script=name)
    return f"{name}: its interpreter {first[2:].decode('utf-8', 'replace')!r} is not there"


def explain_exit(spec: LaunchSpec, code: int) -> str | None:
    """Return what the files say about an exit code, None if they say nothing."""
    if code != _SHELL_NOT_FOUND:
        return None
    script = _script(spec)
    if script is not None and _first_line(script).endswith(b"\r"):
        return _CRLF.format(script=spec.argv[0])
    return None


def with_last_words(decision: Decision, evidence: Evidence) -> Decision:
    """Return the decision with the last line of the output in its reason, where no error is known.

    The line is a hint for people: nothing has been decided by it.
    """
    told = evidence.error_type or evidence.message
    if decision.failure_class is not FailureClass.UNKNOWN:
        return decision
    if evidence.ended_by is not EndedBy.EXIT or not evidence.exit_code or told:
        return decision
    words = _last_line(evidence.log_tail or "")
    if not words or words in decision.reason:
        return decision
    reason = f"{decision.reason} (not evidence, its last line was: {words})"
    return decision.model_copy(update={"reason": reason})


def _last_line(text: str) -> str:
    for line in reversed(_STYLES.sub("", text).splitlines()):
        shown = "".join(character if character.isprintable() else " " for character in line)
        if words := " ".join(shown.split()):
            return words if len(words) <= MAX_WORDS else f"{words[: MAX_WORDS - 3]}..."
    return ""


def read_error_file(path: Path | None) -> tuple[str | None, str | None]:
    """Return type and message of the uncaught exception that the process reported, if it did."""
    if path is None:
        return None, None
    try:
        with open_regular(path) as file:
            fields = json.loads(file.read(MAX_ERROR_FILE_BYTES))
        kind, message = fields["type"], fields["message"]
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return None, None
    if not isinstance(kind, str) or not isinstance(message, str):
        return None, None
    return _valid(kind), _valid(message)


def _valid(text: str) -> str:
    return text.encode("utf-8", "replace").decode()


def _script(spec: LaunchSpec) -> Path | None:
    """The file of argv[0], if it is there and begins with `#!`."""
    name = spec.argv[0]
    if "\0" in name:
        return None
    found = spec.cwd / name if "/" in name else shutil.which(name, path=spec.env.get("PATH"))
    if found is None or not Path(found).is_file():
        return None
    return Path(found) if _first_line(Path(found)).startswith(b"#!") else None


def _first_line(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            return file.readline(4096).rstrip(b"\n")
    except OSError:
        return b""
