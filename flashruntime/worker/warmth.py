"""A worker's warm interpreter: ready before a task comes, so that one lost elsewhere goes on here.

It has imported what scripts of PyTorch need, and what the coordinator says that those of other
workers import; it is forked for scripts that import PyTorch themselves. No interpreter that
outlives a job has been given a file or a variable of one: jobs whose variables may change what is
imported start cold.
"""

import re
from collections.abc import Iterable, Mapping
from importlib.util import find_spec
from pathlib import Path
from threading import Lock, Thread

from flashruntime.launch import memory, warm
from flashruntime.launch.environment import child_environment, may_change_imports
from flashruntime.launch.preload import PRELOADED, modules_of, script_of
from flashruntime.launch.spec import LaunchSpec, WarmStart
from flashruntime.launch.warm import Interpreter, State
from flashruntime.protocol.placement import IMPORT_WORD, MAX_IMPORTS
from flashruntime.worker import events

IMPORTS = ("torch:", "torch._dynamo:", "numpy:", "flashruntime.torch:")
LEAST_MEMORY_BYTES = 1024**3
_PYTHON = "python3"
_TORCH = ("torch", "flashruntime.torch")


class Warmth:
    """How the attempts of a worker are started warm; `environ` is what they inherit from.

    What is to be imported only grows, within the packages that may be imported beforehand.
    """

    def __init__(self, environ: Mapping[str, str], imports: tuple[str, ...] = IMPORTS) -> None:
        self._environ = environ
        self._lock = Lock()
        self._ready = self._wanted = imports
        self._refused: frozenset[str] = frozenset()

    def prepare(self) -> None:
        """Make the interpreter in the background, where there is PyTorch to import."""
        self._make(self._wanted)

    def learn(self, words: Iterable[str]) -> None:
        """Make one that has imported these too; the one that is ready serves until then."""
        with self._lock:
            new = [
                word
                for word in dict.fromkeys(words)
                if word.partition(":")[0].partition(".")[0] in PRELOADED
                and word not in self._wanted
                and word not in self._refused
            ]
            if not new or len(self._wanted) + len(new) > MAX_IMPORTS:
                return
            self._wanted = wanted = (*self._wanted, *new)
        self._make(wanted)

    def start_of(
        self, argv: tuple[str, ...], files: Path, job: Mapping[str, str]
    ) -> WarmStart | None:
        """Return how a command may be forked, `job` being the job's own variables.

        None if they may change an import, or if nothing that takes long is imported.
        """
        script = None if any(map(may_change_imports, job)) else script_of(argv)
        modules = [] if script is None else modules_of(script, files)
        if script is None or not modules:
            return None
        trains = any(module.startswith(_TORCH) for module in modules)
        imports = self._ready if trains and not script.is_module else ()
        return WarmStart(argv, wait=False, prepare=True, imports=imports, late=frozenset(job))

    def _make(self, imports: tuple[str, ...]) -> None:
        if find_spec("torch") is not None:
            Thread(target=self._prepare, args=(imports,), name="warm", daemon=True).start()

    def _spec(self, imports: tuple[str, ...]) -> LaunchSpec:
        argv = (_PYTHON, "train.py")
        env = child_environment(self._environ, {}, {})
        start = WarmStart(argv, wait=False, imports=imports)
        return LaunchSpec(argv, Path("/"), env, Path("/dev/null"), warm=start)

    def _prepare(self, imports: tuple[str, ...]) -> None:
        try:
            made = warm.prepare(self._spec(imports))
        except OSError as error:
            events.warning("warm_start_failed", error=str(error))
            return
        if made is not None:
            made.when_settled(lambda: self._settle(made, imports))

    def _settle(self, made: Interpreter, imports: tuple[str, ...]) -> None:
        events.info("warm_settled", state=made.state.name, imports=len(imports))
        with self._lock:
            before = self._ready
            if made.state is not State.READY:
                self._refused |= frozenset(imports) - frozenset(before)
                self._wanted = before
                return
            if not set(imports) > set(before):
                return
            self._ready = imports
        warm.retire(self._spec(before))


def imported_by(argv: tuple[str, ...], files: Path) -> list[str]:
    """Return what a script imports of the packages that may be imported beforehand."""
    script = script_of(argv)
    words = [] if script is None else modules_of(script, files, within=True)
    return [word for word in words if re.fullmatch(IMPORT_WORD, word)][:MAX_IMPORTS]


def warmth_of(environ: Mapping[str, str], *, is_on: bool) -> Warmth | None:
    """Return how attempts are started warm; None if that is off, or there is little memory."""
    limit_bytes = memory.limit_bytes()
    if not is_on or 0 < limit_bytes < LEAST_MEMORY_BYTES:
        return None
    return Warmth(environ)
