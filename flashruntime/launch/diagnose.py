"""Plain words for a process that did not start, or that ended for a reason outside its log."""

import errno
import os
import shutil
from pathlib import Path

from flashruntime.launch.spec import LaunchSpec

_SHELL_NOT_FOUND = 127
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
