"""Saves in the runtime's own image under strace, which disturbs them at one system call.

The tracer runs in a helper container that sees the host's processes: one inside the save's own
would end with it, and its last line with it.
"""

import json
import re
from contextlib import ExitStack
from typing import Any

from chaos.model import CannotRun
from chaos.ports.syscalls import KILL, Saved
from chaos.powerloss.trace import PROMISE
from chaos.syscalls_trace import CHANGES, Syscall, parse
from chaos.targets.engine import explained
from chaos.targets.helper import UNCONFINED, helper_image
from chaos.targets.images import (
    ACT_S,
    ROLE,
    ROOT,
    EngineImages,
    Shape,
    await_end,
    await_line,
    file_in,
)

_TOLD = re.compile(rf"^{PROMISE.decode()}(.+)$", re.MULTILINE)
DONE = b"chaos: done"


class EngineSyscalls(EngineImages):
    """Saves in containers of one run."""

    def save(self, what: str, at: Syscall | None = None, how: str = KILL) -> Saved:
        """Save once on a fresh volume, then look at what is left there."""
        with ExitStack() as stack, explained(f"traced save of {what}"):
            volume = stack.enter_context(self._volume(what))
            rights = {"volumes": [f"{volume}:{ROOT}:rw"]}
            with self._container(self._python(what, "record", ROOT, rights=rights)) as actor:
                await_line(actor, "chaos: ready")
                actor.reload()
                tracer = stack.enter_context(
                    self._container(_tracer(actor.attrs["State"]["Pid"], at, how))
                )
                await_line(tracer, "attached")
                actor.kill("SIGUSR1")
                exit_code, said = _over(actor)
                if exit_code is None:
                    tracer.kill("SIGINT")
                tracer.wait(timeout=ACT_S)
                calls = parse(file_in(tracer, "/trace").decode("utf-8", "replace"))
            answered = tuple(_TOLD.findall(said))
            saved = Saved(ROOT, calls, answered, exit_code, False, {}, "")
            return self._looked(what, rights, saved)

    def _looked(self, what: str, rights: dict[str, list[str]], saved: Saved) -> Saved:
        """Return what a fresh process makes of the volume."""
        with self._container(self._python(what, "look", ROOT, rights=rights)) as judge:
            await_end(judge)
            lines = judge.logs(stdout=True, stderr=False).decode().splitlines()
        try:
            found = json.loads(lines[-1])
            seen = bool(found["usable"]), dict(found["items"]), str(found["detail"])
        except (IndexError, ValueError, KeyError, TypeError) as error:
            raise CannotRun(f"the judge's answer makes no sense: {lines[-1:]}") from error
        return Saved(saved.root, saved.calls, saved.answered, saved.exit_code, *seen)


def _over(actor: Any) -> tuple[int | None, str]:
    """Wait until the save ended or said that it is done; return its exit code and words."""
    said = b""
    for piece in actor.logs(stream=True, follow=True):
        said += piece
        if DONE in said:
            return None, said.decode("utf-8", "replace")
    status = actor.wait(timeout=ACT_S)["StatusCode"]
    return int(status), said.decode("utf-8", "replace")


def _tracer(pid: int, at: Syscall | None, how: str) -> Shape:
    """Return the container that traces a process by its number on the host."""
    calls = ",".join(f"?{name}" for name in CHANGES.split(","))
    command = ["strace", "-f", "-y", "-ttt", "-s", "16", "-e", f"trace={calls}"]
    if at is not None:
        path = at.lasting_path
        command += ["-P", path] if path else []
        what = f"signal={how}" if how == KILL else f"error={how}"
        command += ["-e", f"inject={at.name}:{what}:when={at.nth_there if path else at.nth}"]
    rights = {
        "user": "0:0",
        "pid_mode": "host",
        "cap_add": ["SYS_PTRACE", "DAC_READ_SEARCH"],
        "security_opt": ["no-new-privileges", *UNCONFINED],
    }
    return Shape(f"{ROLE}trace", helper_image(), [*command, "-o", "/trace", "-p", str(pid)], rights)
