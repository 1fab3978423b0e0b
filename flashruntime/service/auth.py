"""Who asks: tokens with roles, from a file that is read again when it changes.

A line of the file is `role name secret [nodes=PATTERN,...]`. The secret is `sha256:` and the digest
of a token, or the token itself. A worker acts as the nodes that its patterns match; without any, as
NAME and NAME-*.
"""

import hmac
import logging
import os
import re
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path

from flashruntime.config import AccessSettings
from flashruntime.credentials import Role, digest_of, is_token, seen_by_others
from flashruntime.errors import ConfigError

log = logging.getLogger(__name__)
MAX_BYTES = 1024 * 1024
MAX_TOKENS = 1_000
LOOK_EVERY_S = 0.5
SHARED = "FLASHML_TOKEN"
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")
_NODES = re.compile(r"nodes=([A-Za-z0-9._*-]{1,128}(?:,[A-Za-z0-9._*-]{1,128})*)")
_DIGEST = re.compile(r"sha256:([0-9a-fA-F]{64})")
_FORM = "`role name sha256:DIGEST [nodes=PATTERN,...]` with the role operator or worker"


@dataclass(frozen=True, slots=True)
class Caller:
    """Who a token stands for: a name, what it may do, and the nodes that it may act as."""

    name: str
    roles: frozenset[Role]
    nodes: tuple[str, ...] = ()

    def may_be(self, node_id: str) -> bool:
        """Whether it may act as this node."""
        return any(fnmatchcase(node_id, pattern) for pattern in self.nodes)


@dataclass(frozen=True, slots=True)
class Known:
    """A caller and the digest of its token; `plain` where the token itself was written down."""

    caller: Caller
    digest: bytes = field(repr=False)
    plain: bool = False


class TokenBook:
    """The tokens of a coordinator. A file that breaks a rule leaves those in force that were."""

    def __init__(
        self, settings: AccessSettings, monotonic_s: Callable[[], float] = time.monotonic
    ) -> None:
        self._path = settings.tokens_file
        self._monotonic_s = monotonic_s
        self._fixed: tuple[Known, ...] = ()
        if settings.token_digest is not None:
            both = Caller(SHARED, frozenset(Role), ("*",))
            self._fixed = (Known(both, settings.token_digest),)
        self._known: tuple[Known, ...] = self._fixed
        self._seen: tuple[int, ...] = ()
        self._look_at_s = 0.0
        if self._path is not None:
            self._seen = _signature(self._path)
            self._take(self._path)

    def caller(self, token: str) -> Caller | None:
        """Return whom a token stands for, None if nobody.

        How long that takes does not depend on which token matched, or on how well.
        """
        self._look()
        digest = digest_of(token)
        found = None
        for known in self._known:
            if hmac.compare_digest(known.digest, digest):
                found = known.caller
        return found

    def _look(self) -> None:
        """Read the file again where it has changed."""
        now_s = self._monotonic_s()
        if self._path is None or now_s < self._look_at_s:
            return
        self._look_at_s = now_s + LOOK_EVERY_S
        seen = _signature(self._path)
        if seen == self._seen:
            return
        self._seen = seen
        try:
            self._take(self._path)
        except ConfigError as error:
            kept = {"event": "tokens_refused", "kept": len(self._known)}
            log.error("%s; the tokens read before stay in force", error, extra=kept)

    def _take(self, path: Path) -> None:
        self._known = self._fixed + read_tokens(path)
        told = {"event": "tokens_loaded", "tokens": len(self._known)}
        log.info("tokens loaded", extra=told)


def read_tokens(path: Path) -> tuple[Known, ...]:
    """Return what a file of tokens holds; ConfigError, which never shows a secret."""
    try:
        with path.open("rb") as file:
            status, content = os.fstat(file.fileno()), file.read(MAX_BYTES + 1)
        return _parsed(content, status)
    except OSError as error:
        problem = f"cannot be read: {error.strerror}"
    except ValueError as error:
        problem = str(error)
    raise ConfigError(f"FLASHML_TOKENS_FILE={str(path)!r} {problem}")


def parse_line(words: Sequence[str]) -> Known:
    """Return what the words of a line mean; ValueError with the rule that they break."""
    try:
        role, name, secret, *rest = words
        caller = Caller(name, frozenset({Role(role)}), _nodes(name, Role(role), rest))
        if not _NAME.fullmatch(name):
            raise ValueError
    except ValueError:
        raise ValueError(f"is not {_FORM}, with names of letters, digits, '.', '_', '-'") from None
    if found := _DIGEST.fullmatch(secret):
        return Known(caller, bytes.fromhex(found[1]))
    if secret.startswith("sha256:") or not is_token(secret):
        raise ValueError(
            "has neither sha256: and 64 hexadecimal digits, nor a token of 32 to 512 characters; "
            "`flashruntime token` prints a line"
        )
    return Known(caller, digest_of(secret), plain=True)


def _parsed(content: bytes, status: os.stat_result) -> tuple[Known, ...]:
    if len(content) > MAX_BYTES:
        raise ValueError(f"has more than {MAX_BYTES} bytes; a token is one line")
    if content and not content.endswith(b"\n"):
        raise ValueError("ends within a line, as if it were cut short; end it with a line break")
    known = []
    for number, line in enumerate(content.decode("latin-1").split("\n"), 1):
        words = line.split()
        if words and not words[0].startswith("#"):
            try:
                known.append(parse_line(words))
            except ValueError as error:
                raise ValueError(f"line {number} {error}") from None
    secret = any(each.plain for each in known)
    if (problem := seen_by_others(status, secret=secret)) is not None:
        raise ValueError(problem)
    _check(known)
    return tuple(known)


def _check(known: Sequence[Known]) -> None:
    if not 1 <= len(known) <= MAX_TOKENS:
        text = f"must hold 1 to {MAX_TOKENS} tokens, not {len(known)}"
        raise ValueError(f"{text}; `flashruntime token` makes a line")
    if len({each.digest for each in known}) < len(known):
        raise ValueError("holds a token twice; remove one of the lines")
    callers: dict[str, Caller] = {}
    for each in known:
        name = each.caller.name
        if callers.setdefault(name, each.caller) != each.caller:
            raise ValueError(f"has {name!r} with different roles or nodes; rename one of them")


def _nodes(name: str, role: Role, words: list[str]) -> tuple[str, ...]:
    if not words:
        return (name, f"{name}-*") if role is Role.WORKER else ()
    found = _NODES.fullmatch(" ".join(words))
    if found is None or role is not Role.WORKER:
        raise ValueError
    return tuple(found[1].split(","))


def _signature(path: Path) -> tuple[int, ...]:
    try:
        status = path.stat()
    except OSError as error:
        return (error.errno or -1,)
    return (
        status.st_dev,
        status.st_ino,
        status.st_mode,
        status.st_size,
        status.st_mtime_ns,
        status.st_ctime_ns,
    )
