"""Read the errors at the end of a log: pure, never raises, linear in the length of the text.

An error counts only in the form in which a dying process prints it: a closed traceback, a C++
`terminate`, or a bare last line, each the last words of its stream but for launchers' notes.
"""

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from enum import Enum, auto
from functools import lru_cache

from flashruntime.recovery.pattern import Pattern

MAX_TEXT = 128 * 1024
MAX_LINE = 4096
MAX_MESSAGE = 8192

_COLOUR = Pattern(r"\x1b\[[0-9;]{0,16}m")
_RANK = Pattern(r"\[(?:rank|default)(\d{1,6})\]: ?")
_HEADER = "Traceback (most recent call last):"
_QUOTED = "Original Traceback (most recent call last):"
_LAST_ERROR = "Last error:"
_FRAME = Pattern(r'  File ".{1,4000}", line \d+')
_CLOSING = Pattern(r"(?P<type>[A-Za-z_][\w.]*(?:\.<locals>\.\w+)*)(?::(?: (?P<text>.*))?)?")
_BARE = Pattern(r"(?P<type>[A-Za-z_][\w.]*(?:Error|Exception)): (?P<text>.+)")
_TERMINATE = Pattern(r"terminate called after throwing an instance of '(?P<type>[\w:]{1,200})")
_WHAT = Pattern(r"  what\(\):  ?(?P<text>.*)")
_CHAIN = (
    "During handling of the above exception, another exception occurred:",
    "The above exception was the direct cause of the following exception:",
)
_MORE_OF_MESSAGE = Pattern(
    r"\s|CUDA kernel errors might be|For debugging consider|Compile with `TORCH_USE_CUDA_DSA`"
    r"|Search for `cuda|Device-side assertion|Exception raised from |frame #\d+: |=+$|-+$"
    r"|[\w./-]{1,200} FAILED$|Failures:$|Root Cause \(first observed failure\):$|\[\d+\]:$"
    r"|nccl[A-Z]\w{1,40}: |For more information check: "
)
_LAUNCHER = Pattern(
    r"(?:\[\S{1,40}\]:)?\[?[WEIF]\d{0,8} .{0,200}?(?:api\.py|ProcessGroup\w+\.cpp|run\.py)"
    r"|WARNING:torch\.distributed|ERROR:torch\.distributed"
)

_RESTARTED = Pattern(r".{0,200}api\.py.{0,40}(?:Restarting|Stopping) worker group")
# What follows has not ended the process: a destructor's error, a thread's, another process's.
_ASIDE = Pattern(
    r"Exception ignored (?:in|on|while)|Exception in thread |Error in atexit\."
    r"|Process (?:Fork|Spawn|ForkServer)?Process-[\d:]{1,40}:$"
    r"|(?:Task|Future) exception was never retrieved|future: <|--- Logging error ---"
)
_NOTE = Pattern(
    r"\((?:process )?exit(?:ed)?(?: with)?(?: code)? -?\d+(?: / \d+)?\)"
    r"|sys:1: |Aborted(?: \(core dumped\))?$|Command exited with"
    r"|.{0,200}resource_tracker\.py:\d+: UserWarning|\.\.\.$"
)


class Form(Enum):
    """How an error was printed: what it may prove."""

    TRACEBACK = auto()
    TERMINATE = auto()
    BARE = auto()


@dataclass(frozen=True, slots=True)
class Printed:
    """An error in a log; `earlier` are those that the traceback names as what led to it.

    An `explicit` one of them was named as the direct cause. `preceding` are the last lines before
    the traceback.
    """

    form: Form
    type_name: str
    message: str
    line: int
    earlier: tuple["Printed", ...] = ()
    explicit: bool = False
    preceding: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Tail:
    """The last errors of a log.

    `threads` are those with which threads of the main stream ended.

    `final` are those of the main stream that only launchers' notes follow, the oldest first;
    `ranks` are the errors that ranks printed under their own prefix, by time.
    """

    final: tuple[Printed, ...] = ()
    ranks: tuple[Printed, ...] = ()
    launcher_seen: bool = False
    last_line: str = ""
    threads: tuple[Printed, ...] = ()


@dataclass(slots=True)
class _Stream:
    """One process's lines, read forwards."""

    errors: list[Printed] = field(default_factory=list)
    earlier: tuple[Printed, ...] = ()
    in_frames: bool = False
    has_header: bool = False
    frames: int = 0
    in_message: bool = False
    quotes: bool = False
    takes_next: bool = False
    cut: bool = True
    is_aside: bool = False
    was_aside: bool = False
    of_thread: bool = False
    threads: list[Printed] = field(default_factory=list)
    plain: deque[str] = field(default_factory=lambda: deque(maxlen=8))

    def read(self, number: int, line: str) -> None:
        """Take in the next line; a stream may begin in the middle of a traceback."""
        self.cut = self.cut and line.startswith("  ")
        quoting = self.in_message and self.quotes
        if line == _HEADER:
            self._open(has_header=True)
        elif _FRAME.match(line) and not quoting:
            if not self.in_frames:
                self._open(has_header=self.cut)
            self.frames += 1
        elif self.in_frames:
            if not line.startswith("  "):
                self._close(number, line)
        elif line and not (self.in_message and self._is_more(line)):
            self._other(number, line)

    def _is_more(self, line: str) -> bool:
        """Take in a line that still belongs to the error's message."""
        if self.quotes and _CLOSING.fullmatch(line):
            self.quotes = False
        elif line == _QUOTED:
            self.quotes = True
        elif self.takes_next or line == _LAST_ERROR:
            self.takes_next = line == _LAST_ERROR
        elif found := _WHAT.match(line):
            line = found["text"]
        elif not _MORE_OF_MESSAGE.match(line):
            return False
        self._extend(line)
        return True

    def _open(self, *, has_header: bool) -> None:
        self.in_frames, self.has_header, self.frames, self.in_message = True, has_header, 0, False

    def _close(self, number: int, line: str) -> None:
        self.in_frames = False
        found = _CLOSING.fullmatch(line)
        whole = found is not None and self.frames > 0
        if found is None or not whole or not (self.has_header or _is_syntax(found["type"])):
            self._other(number, line)
            return
        if self.is_aside:
            self.is_aside, self.was_aside, self.in_message = False, True, False
            if self.of_thread:
                closed = Printed(Form.TRACEBACK, found["type"], found["text"] or "", number)
                self.threads = [*self.threads, closed][-8:]
            return
        self._add(Form.TRACEBACK, found["type"], found["text"] or "", number)

    def _other(self, number: int, line: str) -> None:
        if _ASIDE.match(line) or (line in _CHAIN and self.was_aside):
            self.is_aside, self.in_message = True, False
            self.of_thread = line.startswith("Exception in thread ")
        elif line in _CHAIN and self.errors:
            last = self.errors.pop()
            explicit = line == _CHAIN[1]
            self.earlier = (*last.earlier, replace(last, earlier=(), explicit=explicit))[-8:]
            self.in_message = False
        elif _LAUNCHER.match(line) or _NOTE.match(line):
            self.in_message = False
        elif found := _TERMINATE.match(line):
            self._add(Form.TERMINATE, found["type"].replace("::", "."), "", number)
        elif found := _BARE.fullmatch(line):
            self._add(Form.BARE, found["type"], found["text"], number)
        else:
            self.errors.clear()
            self.plain.append(line)
            self.earlier, self.in_message = (), False
            self.is_aside = self.was_aside = False

    def _add(self, form: Form, type_name: str, text: str, number: int) -> None:
        before = tuple(self.plain)
        self.errors.append(Printed(form, type_name, text, number, self.earlier, preceding=before))
        self.earlier, self.in_message = (), True
        self.quotes = self.takes_next = self.was_aside = False
        del self.errors[:-64]

    def _extend(self, line: str) -> None:
        last = self.errors[-1]
        if len(last.message) < MAX_MESSAGE:
            joined = f"{last.message}\n{line}" if last.message else line
            self.errors[-1] = replace(last, message=joined)


@lru_cache(maxsize=4)
def read_tail(text: str) -> Tail:
    """Return the errors that end a log; an empty answer where none clearly does.

    One decision asks for the same text several times.
    """
    main = _Stream()
    ranks: dict[str, _Stream] = {}
    launcher_seen, last_line = False, ""
    for number, line in enumerate(_lines(text)):
        last_line = line.strip() or last_line
        launcher_seen = launcher_seen or _LAUNCHER.match(line) is not None
        prefix = _RANK.match(line)
        if _RESTARTED.match(line):
            main, ranks = _Stream(), {}
        elif prefix is None:
            main.read(number, line)
        elif not _LAUNCHER.match(line) and len(ranks) < 4096:
            ranks.setdefault(prefix[1], _Stream()).read(number, line[prefix.end() :])
    own = sorted((e for rank in ranks.values() for e in rank.errors), key=lambda e: e.line)
    final = () if main.in_frames else tuple(main.errors)
    threads = tuple(main.threads) if final else ()
    return Tail(final, tuple(own), launcher_seen or bool(ranks), last_line, threads)


def _lines(text: str) -> Iterator[str]:
    """The lines of the end of a text, each as a terminal shows it."""
    for line in text[-MAX_TEXT:].split("\n"):
        shown = line.rstrip("\r").rpartition("\r")[2][:MAX_LINE]
        yield _COLOUR.sub("", shown) if "\x1b" in shown else shown


def _is_syntax(type_name: str) -> bool:
    return type_name in {"SyntaxError", "IndentationError", "TabError"}
