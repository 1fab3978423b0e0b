"""Settings of the services: the only reader of the process environment for them.

A variable that is unset or empty takes its default; a wrong one raises ConfigError, which names
the variable, the rule and the remedy.
"""

import os
import re
import socket
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from urllib.parse import urlsplit
from uuid import uuid4

from flashruntime.credentials import TOKEN_RULE, TokenSource, digest_of, is_token
from flashruntime.errors import ConfigError
from flashruntime.leases.journal import Journal
from flashruntime.protocol.placement import LABEL_KEY, LABEL_VALUE, MAX_LABELS

DEFAULT_COORDINATOR_URL = "http://127.0.0.1:8000"
DEFAULT_DATA_DIR = Path("flashruntime-data")
DEFAULT_MAX_ARTIFACT_BYTES = 16 * 1024**3
DEFAULT_RETENTION_DAYS = 90
DEFAULT_RETENTION_NODE_DAYS = 7
DEFAULT_MAX_LOG_BYTES = 64 * 1024**2
DEFAULT_SCRUB_BYTES_PER_S = 16 * 1024**2
DEFAULT_NOTICE_S = 20.0
MAX_DAYS = 36_500
MAX_SLOTS = 1024
OFF = frozenset({"0", "false", "no", "off"})
DEFAULT_MAX_REQUESTS_PER_S = 10_000
DEFAULT_MAX_OPEN_REQUESTS = 4_096
DEFAULT_LOG_LEVEL = "info"
LOG_LEVELS = ("debug", "info", "warning", "error")
_NODE_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")
_HOST = re.compile(r"\*|[A-Za-z0-9_]([A-Za-z0-9._-]{0,253})|[0-9A-Fa-f:]{2,45}")
_URL = re.compile(r"https?://[^\s/?#]+(/[^\s?#]*)?")
_SWITCH = {"1": True, "true": True, "yes": True, "0": False, "false": False, "no": False}


@dataclass(frozen=True, slots=True)
class AccessSettings:
    """Who may use a coordinator, and how much.

    Without tokens it serves loopback addresses only, unless `allow_open`, and only requests that
    address it by a loopback name or one of `allowed_hosts` (`*`: any).
    """

    tokens_file: Path | None = None
    token_digest: bytes | None = field(default=None, repr=False)
    allow_open: bool = False
    allowed_hosts: frozenset[str] = frozenset()
    max_requests_per_s: int = DEFAULT_MAX_REQUESTS_PER_S
    max_open_requests: int = DEFAULT_MAX_OPEN_REQUESTS

    @property
    def needs_token(self) -> bool:
        """Whether a request needs a token."""
        return self.tokens_file is not None or self.token_digest is not None

    @classmethod
    def from_env(cls, env: Mapping[str, str] = os.environ) -> "AccessSettings":
        """Read the settings; raise ConfigError for a wrong value."""
        named, token = env.get("FLASHML_TOKENS_FILE"), _token(env)
        return cls(
            tokens_file=Path(named).expanduser().absolute() if named else None,
            token_digest=None if token is None else digest_of(token),
            allow_open=_flag(env, "FLASHML_ALLOW_OPEN"),
            allowed_hosts=_hosts(env, "FLASHML_ALLOWED_HOSTS"),
            max_requests_per_s=_whole(
                env, "FLASHML_MAX_REQUESTS_PER_S", DEFAULT_MAX_REQUESTS_PER_S
            ),
            max_open_requests=_whole(env, "FLASHML_MAX_OPEN_REQUESTS", DEFAULT_MAX_OPEN_REQUESTS),
        )


@dataclass(frozen=True, slots=True)
class KeepingSettings:
    """How much a coordinator stores and for how long; 0 means without bound, or not at all.

    `scrub_bytes_per_s` is the rate at which stored bytes are read again and checked.
    """

    retention_days: int = DEFAULT_RETENTION_DAYS
    retention_node_days: int = DEFAULT_RETENTION_NODE_DAYS
    max_store_bytes: int = 0
    max_job_bytes: int = 0
    max_log_bytes: int = DEFAULT_MAX_LOG_BYTES
    scrub_bytes_per_s: int = DEFAULT_SCRUB_BYTES_PER_S

    @classmethod
    def from_env(cls, env: Mapping[str, str]) -> "KeepingSettings":
        """Read the settings; raise ConfigError for a wrong value."""
        days, node_days = "FLASHML_RETENTION_DAYS", "FLASHML_RETENTION_NODE_DAYS"
        rate = "FLASHML_SCRUB_BYTES_PER_S"
        return cls(
            retention_days=_days(env, days, DEFAULT_RETENTION_DAYS),
            retention_node_days=_days(env, node_days, DEFAULT_RETENTION_NODE_DAYS),
            max_store_bytes=_whole(env, "FLASHML_MAX_STORE_BYTES", 0, least=0),
            max_job_bytes=_whole(env, "FLASHML_MAX_JOB_BYTES", 0, least=0),
            max_log_bytes=_whole(env, "FLASHML_MAX_LOG_BYTES", DEFAULT_MAX_LOG_BYTES),
            scrub_bytes_per_s=_whole(env, rate, DEFAULT_SCRUB_BYTES_PER_S, least=0),
        )


@dataclass(frozen=True, slots=True)
class CoordinatorSettings:
    """Where a coordinator keeps its ledger and artifacts, how large an artifact may be, for whom.

    Its access is closed to all but this machine unless said otherwise.
    """

    ledger_dir: Path
    artifact_dir: Path
    max_artifact_bytes: int = DEFAULT_MAX_ARTIFACT_BYTES
    keeping: KeepingSettings = KeepingSettings()
    ledger_journal: Journal = Journal.WAL
    access: AccessSettings = AccessSettings()
    log_level: str = DEFAULT_LOG_LEVEL

    @classmethod
    def from_env(cls, env: Mapping[str, str] = os.environ) -> "CoordinatorSettings":
        """Read the settings; raise ConfigError for a wrong value."""
        return cls(
            ledger_dir=_path(env, "FLASHML_LEDGER_DIR", "ledger"),
            artifact_dir=_path(env, "FLASHML_ARTIFACT_DIR", "artifacts"),
            max_artifact_bytes=_whole(
                env, "FLASHML_MAX_ARTIFACT_BYTES", DEFAULT_MAX_ARTIFACT_BYTES
            ),
            keeping=KeepingSettings.from_env(env),
            ledger_journal=_journal(env),
            access=AccessSettings.from_env(env),
            log_level=_log_level(env),
        )


class Relaying(StrEnum):
    """Whether checkpoints go through the coordinator's store."""

    AUTO = "auto"
    ON = "on"
    OFF = "off"


@dataclass(frozen=True, slots=True)
class WorkerSettings:
    """Who a worker is, whom it works for, and where it keeps files.

    `notice_s` is the time between SIGTERM and its exit, in which it checkpoints and hands back.
    It runs `slots` tasks at once; `warm_start` lets it keep an interpreter to fork them from.
    """

    coordinator_url: str
    checkpoint_root: Path
    work_dir: Path
    node_id: str
    notice_s: float = DEFAULT_NOTICE_S
    slots: int = 1
    labels: Mapping[str, str] = field(default_factory=dict)
    warm_start: bool = True
    checkpoint_relay: Relaying = Relaying.AUTO
    log_level: str = DEFAULT_LOG_LEVEL

    @classmethod
    def from_env(cls, env: Mapping[str, str] = os.environ) -> "WorkerSettings":
        """Read the settings; raise ConfigError for a wrong value."""
        return cls(
            coordinator_url=coordinator_url(env),
            checkpoint_root=_path(env, "FLASHML_CHECKPOINT_ROOT", "checkpoints"),
            work_dir=_path(env, "FLASHML_WORK_DIR", "work"),
            node_id=_node_id(env),
            notice_s=_seconds(env, "FLASHML_NOTICE_S", DEFAULT_NOTICE_S),
            slots=_slots(env),
            labels=labels(env.get("FLASHML_LABELS", "").split(","), "FLASHML_LABELS"),
            warm_start=env.get("FLASHML_WARM_START", "").lower() not in OFF,
            checkpoint_relay=_relaying(env),
            log_level=_log_level(env),
        )


def labels(texts: Iterable[str], setting: str) -> dict[str, str]:
    """Return labels from texts `key=value`, empty ones left out; `setting` is named in errors."""
    found: dict[str, str] = {}
    for text in filter(None, map(str.strip, texts)):
        key, equals, value = text.partition("=")
        if not equals or not re.fullmatch(LABEL_KEY, key) or not re.fullmatch(LABEL_VALUE, value):
            raise ConfigError(
                f"{setting}: {text!r} must be key=value of letters, digits, '.', '_' and '-' (in a "
                "key also '/'), at most 128 and 63 of them, each beginning and ending with a "
                "letter or digit; write e.g. zone=eu-1"
            )
        if key in found:
            raise ConfigError(f"{setting}: label {key!r} is given twice; name each once")
        found[key] = value
    if len(found) > MAX_LABELS:
        raise ConfigError(f"{setting}: {len(found)} labels are more than {MAX_LABELS}; drop some")
    return found


def coordinator_url(env: Mapping[str, str] = os.environ) -> str:
    """Return FLASHML_COORDINATOR_URL without a trailing slash, or the loopback default."""
    url = env.get("FLASHML_COORDINATOR_URL") or DEFAULT_COORDINATOR_URL
    if (problem := url_problem(url)) is not None:
        raise ConfigError(f"FLASHML_COORDINATOR_URL={without_password(url)!r} {problem}")
    return url.rstrip("/")


def token_source(env: Mapping[str, str] = os.environ) -> TokenSource:
    """Return where FLASHML_TOKEN or FLASHML_TOKEN_FILE has a caller's token; ConfigError."""
    token, named = _token(env), env.get("FLASHML_TOKEN_FILE")
    if token is not None and named:
        raise ConfigError("FLASHML_TOKEN and FLASHML_TOKEN_FILE are both set; unset one of them")
    source = TokenSource(token, Path(named).expanduser().absolute() if named else None)
    source()
    return source


def url_problem(url: str) -> str | None:
    """Return the rule that the address of a coordinator breaks, and the remedy; None if none."""
    if "@" in url.partition("://")[2].partition("/")[0]:
        return "must not hold a name or password; set FLASHML_TOKEN or FLASHML_TOKEN_FILE"
    if _is_url(url):
        return None
    remedy = f"http://{url}" if _is_url(f"http://{url}") else DEFAULT_COORDINATOR_URL
    if "://" in url:
        remedy = DEFAULT_COORDINATOR_URL
    return f"must be an http:// or https:// address without query; write e.g. {remedy}"


def without_password(url: str) -> str:
    """Return an address as it may be shown."""
    return re.sub(r"//[^/]*@", "//...@", url)


def _is_url(url: str) -> bool:
    try:
        return bool(_URL.fullmatch(url)) and urlsplit(url).port != 0
    except ValueError:
        return False


def _path(env: Mapping[str, str], name: str, default: str) -> Path:
    text = env.get(name) or str(DEFAULT_DATA_DIR / default)
    if "\0" in text:
        raise ConfigError(f"{name}={text!r} must be a path without NUL; set it to a directory")
    return Path(text).expanduser().absolute()


def _days(env: Mapping[str, str], name: str, default: int) -> int:
    days = _whole(env, name, default, least=0)
    if days > MAX_DAYS:
        raise ConfigError(f"{name}={days} must be at most {MAX_DAYS}; 0 means for ever")
    return days


def _journal(env: Mapping[str, str]) -> Journal:
    text = env.get("FLASHML_LEDGER_JOURNAL") or Journal.WAL.value
    try:
        return Journal(text)
    except ValueError as error:
        raise ConfigError(
            f"FLASHML_LEDGER_JOURNAL={text!r} must be wal (a local disk) or delete (a directory "
            "that comes from another machine, or through a virtual file system)"
        ) from error


def _whole(env: Mapping[str, str], name: str, default: int, least: int = 1) -> int:
    text = env.get(name)
    if not text:
        return default
    if not re.fullmatch(r"[0-9]{1,18}", text) or int(text) < least:
        raise ConfigError(
            f"{name}={text!r} must be a whole number of at least {least}; e.g. {default}"
        )
    return int(text)


def _slots(env: Mapping[str, str]) -> int:
    slots = _whole(env, "FLASHML_SLOTS", 1)
    if slots > MAX_SLOTS:
        raise ConfigError(f"FLASHML_SLOTS={slots} must be at most {MAX_SLOTS}; start more workers")
    return slots


def _token(env: Mapping[str, str]) -> str | None:
    token = env.get("FLASHML_TOKEN")
    if token and not is_token(token):
        raise ConfigError(f"FLASHML_TOKEN {TOKEN_RULE}")
    return token or None


def _flag(env: Mapping[str, str], name: str) -> bool:
    text = (env.get(name) or "0").lower()
    if text not in _SWITCH:
        raise ConfigError(f"{name}={text!r} must be 1 or 0; leave it unset for 0")
    return _SWITCH[text]


def _hosts(env: Mapping[str, str], name: str) -> frozenset[str]:
    hosts = (env.get(name) or "").replace(",", " ").split()
    for host in hosts:
        if not _HOST.fullmatch(host):
            raise ConfigError(
                f"{name} has {host!r}: it must list host names or addresses without ports, or *; "
                "write e.g. coordinator,flash.example.org"
            )
    return frozenset(host.lower() for host in hosts)


def _seconds(env: Mapping[str, str], name: str, default: float) -> float:
    text = env.get(name)
    if not text:
        return default
    if not re.fullmatch(r"[0-9]{1,6}(\.[0-9]+)?", text):
        raise ConfigError(
            f"{name}={text!r} must be a number of seconds, 0 or more; set it to e.g. {default:g}"
        )
    return float(text)


def _relaying(env: Mapping[str, str]) -> Relaying:
    text = env.get("FLASHML_CHECKPOINT_RELAY") or Relaying.AUTO
    try:
        return Relaying(text)
    except ValueError:
        raise ConfigError(
            f"FLASHML_CHECKPOINT_RELAY={text!r} must be auto, on or off; unset it for auto"
        ) from None


def _log_level(env: Mapping[str, str]) -> str:
    text = env.get("FLASHML_LOG_LEVEL") or DEFAULT_LOG_LEVEL
    if text.lower() not in LOG_LEVELS:
        raise ConfigError(f"FLASHML_LOG_LEVEL={text!r} must be one of {', '.join(LOG_LEVELS)}")
    return text.lower()


def _node_id(env: Mapping[str, str]) -> str:
    given = env.get("FLASHML_NODE_ID")
    if not given:
        host = re.sub(r"[^A-Za-z0-9._-]+", "-", socket.gethostname()).strip("-._")[:64]
        return f"{host or 'worker'}-{uuid4().hex[:8]}"
    if not _NODE_ID.fullmatch(given):
        raise ConfigError(
            f"FLASHML_NODE_ID={given!r} must have 1 to 128 letters, digits, '.', '_' or '-' and "
            "begin with a letter or digit; unset it for the host name with a random suffix"
        )
    return given
