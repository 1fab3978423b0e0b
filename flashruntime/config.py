"""Settings of the services: the only reader of the process environment for them.

A variable that is unset or empty takes its default; a wrong one raises ConfigError, which names
the variable, the rule and the remedy.
"""

import os
import re
import socket
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit
from uuid import uuid4

from flashruntime.errors import ConfigError

DEFAULT_COORDINATOR_URL = "http://127.0.0.1:8000"
DEFAULT_DATA_DIR = Path("flashruntime-data")
DEFAULT_MAX_ARTIFACT_BYTES = 16 * 1024**3
DEFAULT_NOTICE_S = 20.0
DEFAULT_LOG_LEVEL = "info"
LOG_LEVELS = ("debug", "info", "warning", "error")
_NODE_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")
_URL = re.compile(r"https?://[^\s/?#]+(/[^\s?#]*)?")


@dataclass(frozen=True, slots=True)
class CoordinatorSettings:
    """Where a coordinator keeps its ledger and artifacts, and how large an artifact may be."""

    ledger_dir: Path
    artifact_dir: Path
    max_artifact_bytes: int = DEFAULT_MAX_ARTIFACT_BYTES
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
            log_level=_log_level(env),
        )


@dataclass(frozen=True, slots=True)
class WorkerSettings:
    """Who a worker is, whom it works for, and where it keeps files.

    `notice_s` is the time between SIGTERM and its exit, in which it checkpoints and hands back.
    """

    coordinator_url: str
    checkpoint_root: Path
    work_dir: Path
    node_id: str
    notice_s: float = DEFAULT_NOTICE_S
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
            log_level=_log_level(env),
        )


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


def _whole(env: Mapping[str, str], name: str, default: int) -> int:
    text = env.get(name)
    if not text:
        return default
    if not re.fullmatch(r"[0-9]{1,18}", text) or int(text) < 1:
        raise ConfigError(f"{name}={text!r} must be a whole number of at least 1; e.g. {default}")
    return int(text)


def _seconds(env: Mapping[str, str], name: str, default: float) -> float:
    text = env.get(name)
    if not text:
        return default
    if not re.fullmatch(r"[0-9]{1,6}(\.[0-9]+)?", text):
        raise ConfigError(
            f"{name}={text!r} must be a number of seconds, 0 or more; set it to e.g. {default:g}"
        )
    return float(text)


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
