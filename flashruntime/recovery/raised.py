"""An uncaught error, wherever it was found."""

import errno
import re
from collections.abc import Sequence
from dataclasses import dataclass

from flashruntime.protocol.failures import Evidence, ReportedError
from flashruntime.recovery.names import OS_ERRORS, REMOTE
from flashruntime.recovery.pattern import Pattern
from flashruntime.recovery.tail import MAX_MESSAGE, Form, Printed

MAX_QUOTE = 300
_ERRNO = Pattern(r"\[Errno (\d{1,4})\] ")
_ERRNO_OF_RUST = Pattern(r"[^\n]{0,4000}\(os error (\d{1,4})\)[\"')\]]{0,4}$")
_URL_ERROR = Pattern(r"<urlopen error \[Errno (\d{1,4})\] ")
_OWN_SAVE = Pattern(
    r"the checkpoint of step \d+ could not be written to [^\n]{0,4096}: \[Errno (\d{1,4})\] "
)


@dataclass(frozen=True, slots=True)
class Raised:
    """An uncaught exception: the last part of its type's name, and its message.

    `is_certain` is False for a bare last line, which no traceback proves to be an error's end.
    `bases` are its classes, nearest first, and `number` its errno, where the process told them.
    Of the errors in `earlier`, which led to this one, `explicit` ones were named as its cause.
    `preceding` are the lines that were printed last before it.
    """

    type_name: str
    message: str
    is_certain: bool = True
    earlier: tuple["Raised", ...] = ()
    bases: tuple[str, ...] = ()
    number: int | None = None
    explicit: bool = False
    preceding: tuple[str, ...] = ()

    def quote(self) -> str:
        """Return the exception as Python prints it, cut to a readable length."""
        return f"{self.type_name}: {self.message}"[:MAX_QUOTE].rstrip(": \n")

    @property
    def errno_name(self) -> str | None:
        """The name of the operating system's error, where the exception is about one."""
        is_os = self.type_name in OS_ERRORS or "OSError" in self.bases
        if is_os and self.number is not None:
            return errno.errorcode.get(self.number)
        if is_os:
            found = _ERRNO.match(self.message)
        elif self.type_name == "URLError":
            found = _URL_ERROR.match(self.message)
        elif self.type_name == "CheckpointError":
            found = _OWN_SAVE.match(self.message)
        else:
            found = _ERRNO_OF_RUST.match(self.message)
        return None if found is None else errno.errorcode.get(int(found[1]))

    @property
    def cause(self) -> "Raised | None":
        """The error that this one was raised `from`, if it says so."""
        last = self.earlier[-1] if self.earlier else None
        return last if last is not None and last.explicit else None


def reported(type_name: str, message: str | None) -> Raised:
    """Return an error by the name of its type and its message."""
    return Raised(type_name.rsplit(".", 1)[-1], (message or "")[:MAX_MESSAGE])


def told(error: ReportedError, earlier: Sequence[ReportedError] = ()) -> Raised:
    """Return the error that a process wrote into its error file."""
    return Raised(
        error.type_name.rsplit(".", 1)[-1],
        error.message[:MAX_MESSAGE],
        earlier=tuple(told(each) for each in earlier if each.type_name not in REMOTE),
        bases=tuple(error.bases),
        number=error.errno,
        explicit=error.explicit,
    )


def told_first(evidence: Evidence) -> Raised:
    """Return the error of the evidence's own fields."""
    first = ReportedError.model_construct(
        type_name=evidence.error_type or "",
        message=evidence.message or "",
        bases=evidence.error_bases,
        errno=evidence.errno,
        explicit=False,
    )
    return told(first, evidence.led_to_by)


def printed(error: Printed) -> Raised:
    """Return the error that a process printed."""
    name = error.type_name.rsplit(".", 1)[-1]
    earlier = tuple(printed(each) for each in error.earlier)
    certain = error.form is not Form.BARE
    return Raised(
        name,
        error.message,
        certain,
        earlier,
        explicit=error.explicit,
        preceding=error.preceding,
    )


def errno_in_words(text: str) -> str | None:
    """The name of the error number that the launcher's own message gives, None without one."""
    found = re.search(r"\[Errno (\d{1,4})\]", text)
    return None if found is None else errno.errorcode.get(int(found[1]))
