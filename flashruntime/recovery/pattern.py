"""Regular expressions that are compiled at their first use: a run that does not fail needs none."""

import re
from collections.abc import Iterator
from functools import cached_property


class Pattern:
    """As re.Pattern, for the few ways to use one that the rules need."""

    def __init__(self, text: str, flags: int = 0) -> None:
        self._text, self._flags = text, flags

    @cached_property
    def _compiled(self) -> re.Pattern[str]:
        return re.compile(self._text, self._flags)

    def match(self, text: str) -> re.Match[str] | None:
        """Return the match at the beginning of `text`."""
        return self._compiled.match(text)

    def fullmatch(self, text: str) -> re.Match[str] | None:
        """Return the match that is the whole of `text`."""
        return self._compiled.fullmatch(text)

    def search(self, text: str) -> re.Match[str] | None:
        """Return the first match in `text`."""
        return self._compiled.search(text)

    def finditer(self, text: str) -> Iterator[re.Match[str]]:
        """Yield the matches in `text`."""
        return self._compiled.finditer(text)

    def sub(self, replacement: str, text: str) -> str:
        """Return `text` with all matches replaced."""
        return self._compiled.sub(replacement, text)
