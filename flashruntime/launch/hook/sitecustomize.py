"""Reports an uncaught exception of a launched Python to the file FLASHML_ERROR_FILE.

Imports nothing that a user's file could shadow, takes itself off `sys.path`, and then runs the
sitecustomize that the interpreter would have found without it.
"""
# Plain os functions and try-except: pathlib and contextlib would slow every start of a job.

from __future__ import annotations

import os
import sys
from _json import encode_basestring_ascii as quoted
from time import monotonic_ns

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType

_LIMIT = 16_000
_WRAPPERS = {"ChildFailedError", "ProcessRaisedException", "ProcessExitedException"}
_ROOTS = (Exception, BaseException, object)
_HERE = os.path.dirname(os.path.abspath(__file__))


def _install(path: str) -> None:
    earlier = sys.excepthook

    def report(
        kind: type[BaseException], error: BaseException, trace: TracebackType | None
    ) -> None:
        try:
            # Code that is run here would make Python forget that it has to die of SIGINT.
            if kind is not KeyboardInterrupt:
                _write(path, kind, error, trace)
        except BaseException:  # noqa: BLE001, S110 (the exception itself must still be shown)
            pass
        earlier(kind, error, trace)

    sys.excepthook = report


def _write(
    path: str, kind: type[BaseException], error: BaseException, trace: TracebackType | None
) -> None:
    """The first error of all processes stays, unless the main process has one of its own.

    A rank's is kept beside it, for the first to be written need not be the first to fail.
    """
    rank = os.environ.get("RANK", "")
    fields = {**_told(error), "chain": _chain(error), "members": _members(error)}
    fields |= {"traceback": "", "at_ns": monotonic_ns()}
    if rank.isdecimal() and len(rank) < 7:
        fields["rank"] = int(rank)
    try:
        import traceback  # noqa: PLC0415 (needed only by a process that is ending)

        fields["traceback"] = "".join(traceback.format_exception(kind, error, trace))[-_LIMIT:]
    except BaseException:  # noqa: BLE001, S110 (a user's file may shadow traceback)
        pass
    part = f"{path}.{os.getpid()}"
    with open(part, "w", encoding="ascii") as file:
        file.write(_json(fields))
    if os.environ.get("FLASHML_MAIN_PID") == str(os.getpid()) and kind.__name__ not in _WRAPPERS:
        os.replace(part, path)
        return
    try:
        os.link(part, path)
    except FileExistsError:
        pass
    own = f".rank{rank}"
    if "rank" in fields and not path.endswith(own):
        os.replace(part, path + own)
    else:
        os.unlink(part)


def _told(error: BaseException) -> dict[str, object]:
    classes = [each.__name__ for each in type(error).__mro__[1:] if each not in _ROOTS]
    number = getattr(error, "errno", None)
    return {
        "type": type(error).__name__,
        "message": str(error)[:_LIMIT],
        "bases": classes[:32],
        "errno": number if type(number) is int else None,
    }


def _chain(error: BaseException) -> list[object]:
    """What led to an error, the oldest first; `explicit` where the next was raised `from` it."""
    found: list[object] = []
    while len(found) < 8:
        before = error.__cause__
        explicit = before is not None
        if before is None and not error.__suppress_context__:
            before = error.__context__
        if before is None:
            break
        short = {**_told(before), "explicit": explicit}
        short["message"] = str(short["message"])[:2000]
        found.insert(0, short)
        error = before
    return found


def _members(error: BaseException) -> list[object]:
    """The errors in an exception group, and in the groups within it."""
    found: list[object] = []
    todo = [error]
    while todo and len(found) < 16:
        each = todo.pop(0)
        below = getattr(each, "exceptions", None) if hasattr(each, "subgroup") else None
        if isinstance(below, tuple):
            todo += below[:16]
        elif each is not error:
            found.append({**_told(each), "message": str(each)[:2000]})
    return found


def _json(value: object) -> str:
    if isinstance(value, str):
        return quoted(value)
    if isinstance(value, list):
        return "[" + ", ".join(map(_json, value)) + "]"
    if isinstance(value, dict):
        return "{" + ", ".join(f"{quoted(key)}: {_json(each)}" for key, each in value.items()) + "}"
    if value is None or isinstance(value, bool):
        return "null" if value is None else str(value).lower()
    return repr(value)


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


def _serve_warm() -> Callable[[], None]:
    """Serve as a warm interpreter; returns, what is to be done last, only in a fork of that."""
    try:
        before = set(sys.modules)
        sys.path.insert(0, os.path.dirname(_HERE))
        try:
            warm = __import__("warm_main")
        finally:
            del sys.path[0]
            sys.modules.pop("warm_main", None)
        finish: Callable[[], None] = warm.serve(before)
    except BaseException:  # noqa: BLE001 (process boundary: it must not run the script by itself)
        sys.excepthook(*sys.exc_info())
        os._exit(1)
    return finish


_finish = _serve_warm() if "FLASHML_WARM_FD" in os.environ else None
if os.environ.get("FLASHML_DUMP_SIGNAL"):
    _dump_on(os.environ["FLASHML_DUMP_SIGNAL"])
if os.environ.get("FLASHML_ERROR_FILE"):
    _install(os.environ["FLASHML_ERROR_FILE"])
if __name__ == "sitecustomize":
    _run_next()
if _finish is not None:
    _finish()
