"""Interpreters that have imported what a script needs, kept by this process and forked from.

There is one for each Python command up to its script (before it, with imports that are named) and
each environment but for the runtime's own variables and the accelerators to be seen, which nothing
reads while it is imported. One that cannot be made, or that has died of anything but idleness, is
not made again: starts are cold then.
"""

import logging
import os
import shutil
import socket
from collections.abc import Callable
from contextlib import suppress
from enum import Enum, auto
from pathlib import Path
from threading import Lock, Thread

from flashruntime.launch import keepers, ranks
from flashruntime.launch.keeper import ERROR_FILES
from flashruntime.launch.keepers import Keepers
from flashruntime.launch.machine import VISIBLE
from flashruntime.launch.preload import Script, modules_of, names_beside, script_of
from flashruntime.launch.spec import LaunchSpec, WarmStart

_LOG = logging.getLogger(__name__)
MAX_INTERPRETERS = 2
IMPORT_LIMIT_S = 120.0
_MODULES, _STORE = "FLASHML_WARM_MODULES", "FLASHML_WARM_STORE"
_STAYS = "FLASHML_WARM_STAYS"
_OWN_PREFIX = "FLASHML_"
# Each changes where an interpreter looks for modules, or what it does when the script has ended.
_REFUSED = ("PYTHONSAFEPATH", "PYTHONINSPECT", "PYTHONHOME", "PYTHONPROFILEIMPORTTIME")
_READ_BYTES = 65536


class State(Enum):
    """How far an interpreter is."""

    IMPORTING = auto()
    READY = auto()
    GONE = auto()


class Interpreter:
    """One warm interpreter, which has a keeper of its own."""

    def __init__(self, script: Script, spec: LaunchSpec, start: WarmStart) -> None:
        self._lock = Lock()
        self._waiting: list[Callable[[], None]] = []
        self._names: frozenset[str] = frozenset()
        self.state = State.IMPORTING
        self.has_idled_out = False
        env = _shared(ranks.with_defaults(spec.env, start.ranks), start.late)
        env |= {_MODULES: " ".join(start.imports or modules_of(script, spec.cwd))}
        env |= {_STORE: "1"} if start.ranks else {}
        env |= {_STAYS: "1"} if start.imports else {}
        self._control, theirs = socket.socketpair()
        self._keepers = Keepers(self._control)
        request: dict[str, object] = {"argv": script.stand_in, "cwd": "/", "env": env}
        request |= {"log": None, "ranks": [{}], "lingers": True}
        with theirs:
            self._keeper, _ = keepers.open_cold(request, [theirs.fileno()])
        Thread(target=self._follow, name="warm-follow", daemon=True).start()

    def suits(self, spec: LaunchSpec) -> bool:
        """Whether it is ready, and has imported nothing that lies beside the script too."""
        script = None if spec.warm is None else script_of(spec.warm.argv)
        if script is None or self.state is not State.READY:
            return False
        return self._names.isdisjoint(names_beside(script.directory(spec.cwd)))

    def when_settled(self, wake: Callable[[], None]) -> None:
        """Call `wake` once the interpreter is no longer importing."""
        with self._lock:
            if self.state is State.IMPORTING:
                self._waiting.append(wake)
                return
        wake()

    def open(self, spec: LaunchSpec, start: WarmStart) -> tuple[socket.socket, Keepers]:
        """Return the connection to a keeper that forks `spec`, as cold starts do."""
        env = ranks.with_defaults(spec.env, start.ranks)
        script = script_of(start.argv)
        if script is None:
            raise OSError(f"{start.argv!r} is no Python script")
        request = {
            "argv": list(start.argv),
            "head": len(script.head),
            "script": None if script.is_module else script.name,
            "cwd": str(spec.cwd),
            "env": env,
            "log": str(spec.log_path),
            "ranks": ranks.environments(env, start.ranks),
        }
        return self._keepers.open(request), self._keepers

    def retire(self) -> None:
        """Let it end once the processes that it has forked have."""
        self._keepers.close()

    def kill(self) -> None:
        """End it, with all that it has forked."""
        with suppress(OSError):
            self._keeper.sendall(b"stop 0.000\n")

    def _follow(self) -> None:
        try:
            self._take_part()
        finally:
            self._settle(State.GONE)
            self._keepers.close()
        self._await_end(self._keeper)
        self._keeper.close()

    def _take_part(self) -> None:
        head, _, names = self._line().partition(" ")
        self._names = frozenset(names.split())
        if head == "ready":
            self._keepers.restock()
            self._settle(State.READY)
            self.has_idled_out = bool(self._await_end(self._control))

    def _line(self) -> str:
        data = b""
        with suppress(OSError):
            while b"\n" not in data:
                chunk = self._control.recv(_READ_BYTES)
                if not chunk:
                    break
                data += chunk
        return data.decode().strip()

    def _await_end(self, connection: socket.socket) -> bytes:
        """Return what was said before the end."""
        said = b""
        with suppress(OSError):
            while data := connection.recv(_READ_BYTES):
                said += data
        return said

    def _settle(self, state: State) -> None:
        with self._lock:
            self.state, waiting, self._waiting = state, self._waiting, []
        for wake in waiting:
            wake()


class _Pool:
    def __init__(self) -> None:
        self._lock = Lock()
        self._all: dict[object, Interpreter] = {}

    def get(self, key: object, make: Callable[[], Interpreter] | None) -> Interpreter | None:
        """Return the interpreter of a key; where there is none, one is made by `make`."""
        with self._lock:
            found = self._all.pop(key, None)
            if (found is None or found.has_idled_out) and make is not None:
                found = make()
            if found is not None:
                self._all[key] = found
            alive = {key: kept for key, kept in self._all.items() if kept.state is not State.GONE}
            too_many = [self._all.pop(key) for key in list(alive)[:-MAX_INTERPRETERS]]
        for old in too_many:
            old.retire()
        return found

    def drop(self, key: object) -> None:
        with self._lock:
            old = self._all.pop(key, None)
        if old is not None:
            old.retire()

    def clear(self) -> None:
        with self._lock:
            everything, self._all = list(self._all.values()), {}
        for old in everything:
            old.retire()


_pool = _Pool()


def retire_all() -> None:
    """Let every interpreter end once the processes that it has forked have."""
    _pool.clear()


def find(spec: LaunchSpec) -> Interpreter | None:
    """Return the interpreter that `spec` is to be forked from, None for a cold start.

    It may still be importing, where that is to be waited for.
    """
    start = spec.warm
    known = None if start is None else _known(spec, start)
    if start is None or known is None:
        return None
    key, script = known
    make = (lambda: Interpreter(script, spec, start)) if start.wait else None
    try:
        found = _pool.get(key, make)
    except OSError:
        _LOG.exception("no warm interpreter can be made for %s", script.name)
        return None
    if found is None or found.state is State.GONE:
        return None
    if found.state is State.IMPORTING:
        return found if start.wait else None
    return found if found.suits(spec) else None


def prepare(spec: LaunchSpec) -> Interpreter | None:
    """Return the interpreter that a later launch may be forked from, made where there is none."""
    start = spec.warm
    known = None if start is None else _known(spec, start)
    if start is None or known is None:
        return None
    return _pool.get(known[0], lambda: Interpreter(known[1], spec, start))


def retire(spec: LaunchSpec) -> None:
    """Let the interpreter of `spec` end once the processes that it has forked have."""
    start = spec.warm
    known = None if start is None else _known(spec, start)
    if known is not None:
        _pool.drop(known[0])


def _known(spec: LaunchSpec, start: WarmStart) -> tuple[object, Script] | None:
    script, env = script_of(start.argv), ranks.with_defaults(spec.env, start.ranks)
    paths = env.get("PYTHONPATH", "").split(os.pathsep)
    if script is None or not all(map(os.path.isabs, paths)) or any(map(env.get, _REFUSED)):
        return None
    if not _is_program(script.head[0], spec.cwd, env.get("PATH")):
        return None
    head = script.head
    if start.imports:
        if script.is_module:
            return None
        head = (*head[:-1], *start.imports)
    shared = tuple(sorted(_shared(env, start.late).items()))
    return (head, shared, bool(start.ranks), keepers.inherited_state()), script


def _is_program(name: str, cwd: Path, path: str | None) -> bool:
    """Whether a name is that of an interpreter itself: a wrapper script may do anything."""
    found = str(cwd / name) if "/" in name else shutil.which(name, path=path)
    try:
        with open(found or "", "rb") as file:  # noqa: PTH123 (may be "")
            return file.read(2) != b"#!"
    except OSError:
        return False


def _shared(env: dict[str, str], late: frozenset[str]) -> dict[str, str]:
    """What all attempts have in common."""
    late = late | {*ERROR_FILES, VISIBLE}
    own = {name for name in env if name.startswith(_OWN_PREFIX) or name in late}
    return {name: value for name, value in env.items() if name not in own}


def _forget() -> None:
    """In a process that this one has forked, nothing of it is left."""
    global _pool  # noqa: PLW0603 (a fork has its own)
    _pool = _Pool()


os.register_at_fork(after_in_child=_forget)
