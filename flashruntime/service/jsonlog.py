"""The service's log: one strict JSON object a line on standard output.

A thread of its own writes, so that a full pipe never stops the service. Lines that find no room
are dropped; the gap in `seq` shows it.
"""

import json
import logging
import math
import sys
import time
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from datetime import UTC, datetime
from itertools import count
from logging.handlers import QueueHandler, QueueListener
from queue import Full, Queue
from typing import TextIO

MAX_WAITING_LINES = 10_000
MAX_TEXT = 4_000
about: ContextVar[dict[str, str] | None] = ContextVar("about", default=None)
_STANDARD = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "color_message"}


def bind(**ids: str) -> None:
    """Name what the request under way is about in each of its log lines."""
    bound = about.get()
    if bound is not None:
        bound.update(ids)


def request_id() -> str | None:
    """Return the id of the request under way."""
    return (about.get() or {}).get("request_id")


class JsonLines(logging.Formatter):
    """Formats a record, with its `extra` fields, as one line of ASCII-only JSON.

    Whatever the request under way is about stands in the line too.
    """

    def __init__(self) -> None:
        super().__init__()
        self._seq = count(1)

    def format(self, record: logging.LogRecord) -> str:
        """Return the line for `record`."""
        extra = {name: value for name, value in vars(record).items() if name not in _STANDARD}
        line: dict[str, object] = {
            "ts": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "mono_ns": time.monotonic_ns(),
            "seq": next(self._seq),
            "level": record.levelname.lower(),
            "event": extra.pop("event", "message"),
            "message": _plain(record.getMessage()),
            **{name: _plain(value) for name, value in (about.get() or {}).items()},
            **{name: _plain(value) for name, value in extra.items()},
        }
        if record.exc_info:
            trace = "".join(traceback.format_exception(*record.exc_info))[-MAX_TEXT:]
            line["trace"] = "\n".join(str(_plain(text)) for text in trace.splitlines())
        return json.dumps(line, allow_nan=False)


class _Lossy(QueueHandler):
    """Hands records over without waiting, and formats them before it does."""

    def enqueue(self, record: logging.LogRecord) -> None:
        """Queue a record, or drop it where there is no room."""
        try:
            self.queue.put_nowait(record)
        except Full:
            return

    def prepare(self, record: logging.LogRecord) -> logging.LogRecord:
        """Return a record that holds the finished line alone."""
        return logging.makeLogRecord({"msg": self.format(record), "levelno": record.levelno})


@contextmanager
def running(stream: TextIO = sys.stdout, level: str = "info") -> Iterator[None]:
    """Send the logs of flashruntime and uvicorn to `stream`, inside the block by the thread."""
    logging.getLogger("flashruntime").setLevel(level.upper())
    formatter = JsonLines()
    queue: Queue[logging.LogRecord] = Queue(MAX_WAITING_LINES)
    _use(_Lossy(queue), formatter)
    listener = QueueListener(queue, logging.StreamHandler(stream))
    listener.start()
    try:
        yield
    finally:
        listener.stop()
        _use(logging.StreamHandler(stream), formatter)


def _use(handler: logging.Handler, formatter: logging.Formatter) -> None:
    handler.setFormatter(formatter)
    for name in ("flashruntime", "uvicorn"):
        logger = logging.getLogger(name)
        logger.handlers, logger.propagate = [handler], False
    for name, kept in (("uvicorn.error", True), ("uvicorn.access", False)):
        logger = logging.getLogger(name)
        logger.handlers, logger.propagate = [], kept


def _plain(value: object) -> object:
    if value is None or isinstance(value, bool | int):
        return value
    if isinstance(value, float) and math.isfinite(value):
        return value
    text = str(value)
    shown = text if len(text) <= MAX_TEXT else f"{text[:MAX_TEXT]}... ({len(text)} characters)"
    return "".join(character if character.isprintable() else "\ufffd" for character in shown)
