"""The layer around every request: its line in the log."""

import asyncio
import json
import logging
from io import StringIO
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flashruntime.service import jsonlog
from flashruntime.service.observe import Observed
from flashruntime.service.requests import AroundRequests

HEADERS = st.lists(st.tuples(st.just(b"x-request-id"), st.binary(max_size=40)), max_size=2)


class Route:
    path = "/v1alpha1/jobs/{job_id}"


def line_of(
    scope: dict[str, Any], status: int, *, level: int = logging.DEBUG, fails: bool = False
) -> list[dict[str, Any]]:
    """Serve one request and return what stands in the log."""
    stream = StringIO()
    logger = logging.getLogger("flashruntime.service.requests")
    handler = logging.StreamHandler(stream)
    handler.setFormatter(jsonlog.JsonLines())

    async def app(scope: Any, receive: Any, send: Any) -> None:
        scope |= {"route": Route, "path_params": {"job_id": scope["path"], "name": "x"}}
        jsonlog.bind(lease_id=scope["path"])
        if fails:
            raise RuntimeError
        await send({"type": "http.response.start", "status": status, "headers": []})

    async def sent(message: Any) -> None:
        assert [name for name, _ in message["headers"]] == [b"x-request-id"]

    async def run() -> None:
        whole = {"type": "http", "method": "GET", "path": "/", "headers": [], **scope}
        await AroundRequests(app, Observed())(whole, None, sent)  # type: ignore[arg-type]

    before = (logger.level, logger.propagate)
    logger.addHandler(handler)
    logger.setLevel(level)
    logger.propagate = False
    try:
        asyncio.run(run())
    except RuntimeError:
        assert fails
    finally:
        logger.removeHandler(handler)
        logger.level, logger.propagate = before
        logging.getLogger().manager._clear_cache()  # type: ignore[attr-defined]
    return [json.loads(line) for line in stream.getvalue().splitlines()]


@given(HEADERS, st.text(max_size=30), st.text(max_size=8))
def test_l20_a_line_is_json_whatever_a_request_holds(
    headers: list[tuple[bytes, bytes]], path: str, method: str
) -> None:
    """Path, method and headers can break no line; ids stand in it."""
    (line,) = line_of({"path": f"/{path}", "method": method, "headers": headers}, 200)
    assert (line["event"], line["status"]) == ("request", 200)
    assert line["request_id"].isascii()
    assert {"lease_id", "job_id", "duration_ms", "route", "client"} <= set(line)
    assert all(character.isprintable() for character in line["message"])


@pytest.mark.parametrize(
    ("method", "status", "level"),
    [
        ("GET", 200, "debug"),
        ("GET", 404, "info"),
        ("POST", 200, "info"),
        ("PUT", 503, "warning"),
        ("GET", 500, "error"),
    ],
)
def test_what_is_refused_or_changes_something_is_told(method: str, status: int, level: str) -> None:
    (line,) = line_of({"method": method}, status)
    assert line["level"] == level


def test_a_request_that_breaks_has_a_line_too() -> None:
    (line,) = line_of({}, 0, fails=True)
    assert (line["status"], line["level"]) == (None, "info")
