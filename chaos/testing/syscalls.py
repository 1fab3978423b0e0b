"""The twin of what disturbs saves: five calls in memory, of which the rename publishes the step."""

from collections.abc import Mapping

from chaos.ports.syscalls import KILL, Saved
from chaos.syscalls_trace import Syscall

ROOT = "/volume"
OLDER, NEWER = "step-000010", "step-000020"
STAGED, FINAL = f"{ROOT}/.staging/{NEWER}", f"{ROOT}/{NEWER}"
CALLS = (
    Syscall(1, 1.0, "mkdir", "", (STAGED,), 1, 0),
    Syscall(1, 2.0, "write", "", (f"{STAGED}/part",), 1, 9),
    Syscall(1, 3.0, "fsync", "", (f"{STAGED}/part",), 1, 0),
    Syscall(1, 4.0, "rename", "", (STAGED, FINAL), 1, 0),
    Syscall(1, 5.0, "fsync", "", (ROOT,), 2, 0),
)
OUTSIDE = Syscall(1, 0.5, "write", "", ("/dev/null",), 1, 1)


class FakeSyscalls:
    """A save that is honest, or answers before it renames; `misses` lets nothing land."""

    def __init__(self, *, synced: bool = True, misses: bool = False) -> None:
        self._honest = synced
        self._misses = misses
        self.asked: list[tuple[str, Syscall | None, str]] = []

    def save(self, what: str, at: Syscall | None = None, how: str = KILL) -> Saved:
        """Return the save of a step, ended or refused at the call `at`."""
        self.asked.append((what, at, how))
        if at is None or self._misses:
            return self._saved(len(CALLS), CALLS, None)
        done = CALLS.index(at)
        if how == KILL:
            hit = Syscall(at.thread, at.at_s, at.name, at.words, at.paths, at.nth)
            return self._saved(done, (*CALLS[:done], hit), 137)
        hit = Syscall(1, at.at_s, at.name, at.words, at.paths, at.nth, -1, how, injected=True)
        return self._saved(done, (*CALLS[:done], hit), 1)

    def _saved(self, done: int, calls: tuple[Syscall, ...], exit_code: int | None) -> Saved:
        renamed, told = done >= 4, done >= (5 if self._honest else 3)
        items: Mapping[str, str] = {OLDER: "whole", NEWER: "whole" if renamed else "absent"}
        answered = (NEWER,) if told else ()
        return Saved(ROOT, (OUTSIDE, *calls), answered, exit_code, True, items, "")
