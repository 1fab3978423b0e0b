"""Tokens: how they look, where a caller has its own from, and who may see the file that holds one.

A token is a long random text. It is never shown: not in errors, not in logs, not by repr.
"""

import hashlib
import os
import re
import secrets
import stat
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path

from flashruntime.errors import ConfigError

PREFIX = "flashml_"
MIN_CHARACTERS = 32
MAX_CHARACTERS = 512
MAX_FILE_BYTES = 64 * 1024
_TOKEN = re.compile(r"[A-Za-z0-9._~+/-]{32,512}={0,2}")
TOKEN_RULE = (
    f"must have {MIN_CHARACTERS} to {MAX_CHARACTERS} letters, digits or '._~+/-'; "
    "`flashruntime token` makes one"
)


class Role(StrEnum):
    """What a token is for."""

    OPERATOR = "operator"
    WORKER = "worker"


def new_token() -> str:
    """Return a token of 256 random bits."""
    return PREFIX + secrets.token_urlsafe(32)


def is_token(text: str) -> bool:
    """Whether a text has the form of a token."""
    return bool(_TOKEN.fullmatch(text))


def digest_of(token: str) -> bytes:
    """Return the SHA-256 of a token.

    A token is random and long, so that a plain digest cannot be turned back by guessing.
    """
    return hashlib.sha256(token.encode("utf-8", "surrogateescape")).digest()


def seen_by_others(status: os.stat_result, *, secret: bool) -> str | None:
    """Return what is wrong with the permissions of a file of tokens, and the remedy."""
    if stat.S_IMODE(status.st_mode) & 0o022:
        return "may be changed by others than its owner; chmod 600 it"
    if secret and stat.S_IMODE(status.st_mode) & 0o004:
        return "holds a token and may be read by everybody; chmod 600 it"
    return None


@dataclass(slots=True)
class TokenSource:
    """Where a caller has its token from: a value, or a file that is read again when it changes.

    Called, it returns the token, or None where there is none. A file that cannot be used is a
    ConfigError at first; later the token that was read last goes on to count.
    """

    value: str | None = field(default=None, repr=False)
    path: Path | None = None
    _seen: tuple[int, ...] = ()

    def __call__(self) -> str | None:
        """Return the token of this moment."""
        if self.path is None:
            return self.value
        try:
            status = self.path.stat()
            seen = (status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns)
            if seen != self._seen:
                self.value, self._seen = _token_in(self.path, status), seen
        except (OSError, ConfigError) as error:
            if self.value is None:
                reason = getattr(error, "strerror", None) or str(error)
                raise ConfigError(f"FLASHML_TOKEN_FILE={str(self.path)!r}: {reason}") from error
        return self.value


def _token_in(path: Path, status: os.stat_result) -> str:
    with path.open("rb") as file:
        token = file.read(MAX_FILE_BYTES).decode("ascii", "replace").strip()
    problem = None
    if status.st_uid == os.geteuid():
        problem = seen_by_others(status, secret=True)
    if problem is None and not is_token(token):
        problem = f"the file must hold a token and nothing else; it {TOKEN_RULE}"
    if problem is not None:
        raise ConfigError(problem)
    return token
