"""Settings of the services: the only reader of the process environment for them.

A variable that is unset or empty takes its default; a wrong one raises ConfigError, which names
the variable, the rule and the remedy.
"""

import os
import re
import socket
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit
from uuid import uuid4

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
_NODE_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")
_URL = re.compile(r"https?://[^\s/?#]+(/[^\s?#]*)?")


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
    """Where a coordinator keeps its ledger and artifacts, and how large an artifact may be."""

    ledger_dir: Path
    artifact_dir: Path
    max_artifact_bytes: int = DEFAULT_MAX_ARTIFACT_BYTES
    keeping: KeepingSettings = KeepingSettings()
    ledger_journal: Journal = Journal.WAL

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
        )


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
        raise ConfigError(f"FLASHML_COORDINATOR_URL={url!r} {problem}")
    return url.rstrip("/")


def url_problem(url: str) -> str | None:
    """Return the rule that the address of a coordinator breaks, and the remedy; None if none."""
    if _is_url(url):
        return None
    remedy = f"http://{url}" if _is_url(f"http://{url}") else DEFAULT_COORDINATOR_URL
    if "://" in url:
        remedy = DEFAULT_COORDINATOR_URL
    return f"must be an http:// or https:// address without query; write e.g. {remedy}"


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


def _seconds(env: Mapping[str, str], name: str, default: float) -> float:
    text = env.get(name)
    if not text:
        return default
    if not re.fullmatch(r"[0-9]{1,6}(\.[0-9]+)?", text):
        raise ConfigError(
            f"{name}={text!r} must be a number of seconds, 0 or more; set it to e.g. {default:g}"
        )
    return float(text)


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
