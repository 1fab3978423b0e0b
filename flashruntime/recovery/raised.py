"""An uncaught error, wherever it was found."""

import errno
import re
from dataclasses import dataclass

from flashruntime.recovery.names import OS_ERRORS
from flashruntime.recovery.tail import MAX_MESSAGE, Form, Printed

MAX_QUOTE = 300
_ERRNO = re.compile(r"\[Errno (\d{1,4})\] ")
_ERRNO_OF_RUST = re.compile(r"[^\n]{0,4000}\(os error (\d{1,4})\)[\"')\]]{0,4}$")
_URL_ERROR = re.compile(r"<urlopen error \[Errno (\d{1,4})\] ")
_OWN_SAVE = re.compile(
    r"the checkpoint of step \d+ could not be written to [^\n]{0,4096}: \[Errno (\d{1,4})\] "
)


@dataclass(frozen=True, slots=True)
class Raised:
    """An uncaught exception: the last part of its type's name, and its message.

    `is_certain` is False for a bare last line, which no traceback proves to be an error's end.
    """

    type_name: str
    message: str
    is_certain: bool = True
    earlier: tuple["Raised", ...] = ()

    def quote(self) -> str:
        """Return the exception as Python prints it, cut to a readable length."""
        return f"{self.type_name}: {self.message}"[:MAX_QUOTE].rstrip(": \n")

    @property
    def errno_name(self) -> str | None:
        """The name of the operating system's error, where the message is about one."""
        if self.type_name in OS_ERRORS:
            found = _ERRNO.match(self.message)
        elif self.type_name == "URLError":
            found = _URL_ERROR.match(self.message)
        elif self.type_name == "CheckpointError":
            found = _OWN_SAVE.match(self.message)
        else:
            found = _ERRNO_OF_RUST.match(self.message)
        return None if found is None else errno.errorcode.get(int(found[1]))


def reported(type_name: str, message: str | None) -> Raised:
    """Return the error that a process wrote into its error file."""
    return Raised(type_name.rsplit(".", 1)[-1], (message or "")[:MAX_MESSAGE])


def printed(error: Printed) -> Raised:
    """Return the error that a process printed."""
    name = error.type_name.rsplit(".", 1)[-1]
    earlier = tuple(printed(each) for each in error.earlier)
    return Raised(name, error.message, error.form is not Form.BARE, earlier)


def errno_in_words(text: str) -> str | None:
    """The name of the error number that the launcher's own message gives, None without one."""
    found = re.search(r"\[Errno (\d{1,4})\]", text)
    return None if found is None else errno.errorcode.get(int(found[1]))
