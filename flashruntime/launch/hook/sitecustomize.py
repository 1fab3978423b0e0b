"""Reports an uncaught exception of a launched Python to the file FLASHML_ERROR_FILE.

Imports nothing that a user's file could shadow, takes itself off `sys.path`, and then runs the
sitecustomize that the interpreter would have found without it.
"""
# Plain os functions and try-except: pathlib and contextlib would slow every start of a job.

from __future__ import annotations

import os
import sys
from _json import encode_basestring_ascii as quoted

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import TracebackType

_LIMIT = 16_000
_WRAPPERS = {"ChildFailedError", "ProcessRaisedException", "ProcessExitedException"}
_HERE = os.path.dirname(os.path.abspath(__file__))


def _install(path: str) -> None:
    earlier = sys.excepthook

    def report(
        kind: type[BaseException], error: BaseException, trace: TracebackType | None
    ) -> None:
        try:
            _write(path, kind, error, trace)
        except BaseException:  # noqa: BLE001, S110 (the exception itself must still be shown)
            pass
        earlier(kind, error, trace)

    sys.excepthook = report


def _write(
    path: str, kind: type[BaseException], error: BaseException, trace: TracebackType | None
) -> None:
    """The main process's error replaces its children's, unless it only wraps one of theirs."""
    fields = {"type": kind.__name__, "message": str(error)[:_LIMIT], "traceback": ""}
    try:
        import traceback  # noqa: PLC0415 (needed only by a process that is ending)

        fields["traceback"] = "".join(traceback.format_exception(kind, error, trace))[-_LIMIT:]
    except BaseException:  # noqa: BLE001, S110 (a user's file may shadow traceback)
        pass
    part = f"{path}.{os.getpid()}"
    with open(part, "w", encoding="ascii") as file:
        file.write(
            "{" + ", ".join(f"{quoted(name)}: {quoted(text)}" for name, text in fields.items())
        )
        file.write("}")
    if os.environ.get("FLASHML_MAIN_PID") == str(os.getpid()) and kind.__name__ not in _WRAPPERS:
        os.replace(part, path)
        return
    try:
        os.link(part, path)
    except FileExistsError:
        pass
    os.unlink(part)


def _run_next() -> None:
    sys.path[:] = [entry for entry in sys.path if os.path.abspath(entry) != _HERE]
    this = sys.modules.pop(__name__)
    try:
        __import__(__name__)
    except ModuleNotFoundError as error:
        if error.name != __name__:
            raise
    finally:
        sys.modules.setdefault(__name__, this)


def _dump_on(number: str) -> None:
    """Let a signal print the stacks of all threads: the launcher's, to a process that hangs."""
    try:
        import faulthandler  # noqa: PLC0415 (needed only under a limit on progress)

        faulthandler.register(int(number), all_threads=True)
    except BaseException:  # noqa: BLE001, S110 (a job must start without it too)
        pass


if os.environ.get("FLASHML_DUMP_SIGNAL"):
    _dump_on(os.environ["FLASHML_DUMP_SIGNAL"])
if os.environ.get("FLASHML_ERROR_FILE"):
    _install(os.environ["FLASHML_ERROR_FILE"])
if __name__ == "sitecustomize":
    _run_next()
