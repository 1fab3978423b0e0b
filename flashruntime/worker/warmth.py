"""A worker's warm interpreter: ready before a task comes, so that one lost elsewhere goes on here.

It has imported what scripts of PyTorch need and is forked for those that import PyTorch themselves.
No interpreter that outlives a job has been given a file or a variable of one: jobs whose variables
may change what is imported start cold.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from threading import Thread

from flashruntime.launch import memory, warm
from flashruntime.launch.environment import child_environment, may_change_imports
from flashruntime.launch.preload import modules_of, script_of
from flashruntime.launch.spec import LaunchSpec, WarmStart
from flashruntime.worker import events

IMPORTS = ("torch:", "torch._dynamo:", "numpy:", "flashruntime.torch:")
LEAST_MEMORY_BYTES = 1024**3
_PYTHON = "python3"
_TORCH = ("torch", "flashruntime.torch")


@dataclass(frozen=True, slots=True)
class Warmth:
    """How the attempts of a worker are started warm; `environ` is what they inherit from."""

    environ: Mapping[str, str]
    imports: tuple[str, ...] = IMPORTS

    def prepare(self) -> None:
        """Make the interpreter in the background, where there is PyTorch to import."""
        if find_spec("torch") is not None:
            Thread(target=self._prepare, name="warm", daemon=True).start()

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
        imports = self.imports if trains and not script.is_module else ()
        return WarmStart(argv, wait=False, prepare=True, imports=imports, late=frozenset(job))

    def _prepare(self) -> None:
        argv = (_PYTHON, "train.py")
        env = child_environment(self.environ, {}, {})
        start = WarmStart(argv, wait=False, imports=self.imports)
        try:
            made = warm.prepare(LaunchSpec(argv, Path("/"), env, Path("/dev/null"), warm=start))
        except OSError as error:
            events.warning("warm_start_failed", error=str(error))
            return
        if made is not None:
            made.when_settled(lambda: events.info("warm_settled", state=made.state.name))


def warmth_of(environ: Mapping[str, str], *, is_on: bool) -> Warmth | None:
    """Return how attempts are started warm; None if that is off, or there is little memory."""
    limit_bytes = memory.limit_bytes()
    if not is_on or 0 < limit_bytes < LEAST_MEMORY_BYTES:
        return None
    return Warmth(environ)
