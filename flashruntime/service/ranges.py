"""The Range header of HTTP, one range at a time. Pure."""

import re

from flashruntime.service.errors import UnsatisfiableRange

_RANGE = re.compile(r"bytes=([0-9]{0,100})-([0-9]{0,100})", re.IGNORECASE)


def selected(header: str | None, size_bytes: int) -> tuple[int, int] | None:
    """Return (start, end) of the bytes that `header` selects, or None for the whole object.

    A header that is malformed or names several ranges is ignored, as RFC 9110 allows. Raises
    UnsatisfiableRange where the range begins beyond the end.
    """
    match = _RANGE.fullmatch(header or "")
    if match is None or match.groups() == ("", ""):
        return None
    first, last = match.groups()
    if first == "":
        start, end = max(0, size_bytes - int(last)), size_bytes
    else:
        start = int(first)
        end = min(size_bytes, int(last) + 1) if last else size_bytes
        if last and int(last) < start:
            return None
    if start >= size_bytes:
        raise UnsatisfiableRange(header, size_bytes)
    return start, end
