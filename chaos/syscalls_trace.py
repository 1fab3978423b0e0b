"""Reads what `strace -f -y -ttt` wrote: one value a system call, in their order."""

import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import PurePosixPath

_LINE = re.compile(r"(?P<thread>\d+) +(?P<at>\d+\.\d+) (?P<rest>.*)")
_BEGUN = re.compile(r"(?P<name>\w+)\((?P<words>.*?)(?: <unfinished \.\.\.>|\) += (?P<end>.*))$")
_RESUMED = re.compile(r"<\.\.\. (?P<name>\w+) resumed>(?P<words>.*)\) += (?P<end>.*)$")
_FOLDER = r"(?:AT_FDCWD|-?\d+)(?:<(?P<folder>[^>]*)>)?"
_NAMED = re.compile(rf'(?:{_FOLDER}, )?"(?P<path>(?:[^"\\]|\\.)*)"')
_DESCRIPTOR = re.compile(r"\d+<(?P<path>[^>]*)>")
_ERROR = re.compile(r"-1 (?P<errno>E[A-Z0-9]+)")
_CHANGING = re.compile(r"\w[0-9a-fA-F]{7,}\w*|\d{7,}|(?<=\.)\w+\.tmp")
BY_DESCRIPTOR = {"write", "pwrite64", "writev", "fsync", "fdatasync", "ftruncate", "close"}
CHANGES = (
    "openat,mkdir,mkdirat,write,pwrite64,writev,fsync,fdatasync,ftruncate,rename,renameat,"
    "renameat2,link,linkat,unlink,unlinkat,rmdir"
)
"""The calls that change a disk, or say when a change lasts."""


@dataclass(frozen=True, slots=True)
class Syscall:
    """One call of a thread; `result` is None where none was seen, as when the thread was killed.

    `nth` counts the calls of this name that the thread had begun, from 1, as strace's `when=` does;
    `nth_there` only those that name its first path, as with `-P`.
    """

    thread: int
    at_s: float
    name: str
    words: str
    paths: tuple[str, ...]
    nth: int
    result: int | None = None
    errno: str | None = None
    injected: bool = False
    delayed: bool = False
    nth_there: int = 1

    @property
    def lasting_path(self) -> str | None:
        """The first path, where the call itself spells it out and each run has the same."""
        path = self.paths[0] if self.paths else ""
        spelt = f"<{path}>" in self.words or f'"{path}"' in self.words
        return path if path and spelt and path == _CHANGING.sub("*", path) else None

    @property
    def place(self) -> tuple[str, ...]:
        """Name and paths, without the parts of a path that differ from run to run."""
        return self.name, *(_CHANGING.sub("*", path) for path in self.paths)

    def changes(self, root: str) -> bool:
        """Whether it changes what lies below `root`, or makes a change there last."""
        inside = any(path == root or path.startswith(f"{root}/") for path in self.paths)
        return inside and (self.name != "openat" or "O_CREAT" in self.words)


def parse(trace: str) -> tuple[Syscall, ...]:
    """Return the calls of a trace; lines about signals and exits are none."""
    found: list[Syscall] = []
    open_calls: dict[int, int] = {}
    counts: Counter[tuple[int, str]] = Counter()
    for line in trace.splitlines():
        if (head := _LINE.fullmatch(line)) is None:
            continue
        thread = int(head["thread"])
        if (end := _RESUMED.match(head["rest"])) is not None:
            if (index := open_calls.pop(thread, None)) is not None:
                words = found[index].words + end["words"]
                found[index] = _ended(found[index], words, end["end"])
        elif (begun := _BEGUN.match(head["rest"])) is not None:
            name, words = begun["name"], begun["words"]
            counts[thread, name] += 1
            paths = _paths(name, words)
            call = Syscall(thread, float(head["at"]), name, words, paths, counts[thread, name])
            if begun["end"] is None:
                open_calls[thread] = len(found)
            else:
                call = _ended(call, words, begun["end"])
            found.append(call)
    return tuple(_counted_there(found))


def _ended(call: Syscall, words: str, end: str) -> Syscall:
    number = re.match(r"-?\d+", end)
    error = _ERROR.match(end)
    return replace(
        call,
        words=words,
        paths=_paths(call.name, words),
        result=int(number[0]) if number else None,
        errno=error["errno"] if error else None,
        injected=end.endswith("(INJECTED)"),
        delayed=end.endswith("(DELAYED)"),
    )


def _paths(name: str, words: str) -> tuple[str, ...]:
    if name in BY_DESCRIPTOR:
        found = _DESCRIPTOR.match(words)
        return (found["path"],) if found else ()
    return tuple(
        str(PurePosixPath(each["folder"] or "", each["path"])) for each in _NAMED.finditer(words)
    )


def _counted_there(found: list[Syscall]) -> Iterator[Syscall]:
    there: Counter[tuple[int, str, str]] = Counter()
    for call in found:
        there.update((call.thread, call.name, path) for path in set(call.paths))
        first = call.paths[0] if call.paths else ""
        yield replace(call, nth_there=max(1, there[call.thread, call.name, first]))
