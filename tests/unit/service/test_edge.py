"""What HTTP brings: keys, ranges, errors, log lines."""

import asyncio
import json
import logging
import math
from io import StringIO
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flashruntime import errors
from flashruntime.service import jsonlog
from flashruntime.service.errors import (
    BadKey,
    LogGap,
    TooLarge,
    UnsatisfiableRange,
    status_of,
)
from flashruntime.service.jsonlog import JsonLines
from flashruntime.service.ranges import selected
from flashruntime.service.strict import StrictRequest, object_key

PREFIX = b"/v1alpha1/artifacts/"


def key_of(raw: bytes) -> str:
    return object_key(PREFIX + raw, PREFIX)


@pytest.mark.parametrize(
    "raw",
    [
        b"..%2f..%2fetc%2fx",
        b"../../etc/x",
        b"%2e%2e/x",
        b"%2fetc%2fx",
        b"/etc/x",
        b"a%5c..%5cb",
        b"x%00y",
        b"..%252f..%252fx",
        b"a/./b",
        b"a//b",
        b"",
        b"a/",
        b"cafe%CC%81",
        b"x%C0",
        b"%c0%ae",
        b"x%0Ay",
        b"%",
        b"a%zz",
        b"a" * 256,
        b"a/" * 600 + b"a",
    ],
)
def test_113_115_ambiguous_or_escaping_keys_are_refused(raw: bytes) -> None:
    with pytest.raises(BadKey):
        key_of(raw)


def test_115_plain_and_encoded_spellings_of_one_key_are_one_key() -> None:
    assert key_of(b"caf%C3%A9/a%20b") == "café/a b"
    assert key_of(b"%61") == key_of(b"a") == "a"


@given(st.binary(max_size=30))
def test_whatever_the_bytes_a_key_is_safe_or_refused(raw: bytes) -> None:
    try:
        key = key_of(raw)
    except BadKey:
        return
    assert not key.startswith("/")
    assert not {"", ".", ".."} & set(key.split("/"))
    assert key.isprintable()


@pytest.mark.parametrize(
    ("header", "expected"),
    [
        (None, None),
        ("bytes=0-0", (0, 1)),
        ("bytes=2-", (2, 10)),
        ("bytes=2-99", (2, 10)),
        ("bytes=-3", (7, 10)),
        ("bytes=-99", (0, 10)),
        ("bytes=-", None),
        ("bytes=5-2", None),
        ("bytes=0-1,3-4", None),
        ("items=0-1", None),
        ("bytes=٣-٤", None),
    ],
)
def test_a_range_selects_bytes_and_a_malformed_one_is_ignored(
    header: str | None, expected: tuple[int, int] | None
) -> None:
    assert selected(header, 10) == expected


@pytest.mark.parametrize("header", ["bytes=10-", "bytes=99-100", "bytes=-0"])
def test_a_range_beyond_the_end_is_refused(header: str) -> None:
    with pytest.raises(UnsatisfiableRange):
        selected(header, 10)


@pytest.mark.parametrize(
    ("error", "status", "code"),
    [
        (errors.Superseded(), 410, "superseded"),
        (errors.Conflict(), 409, "conflict"),
        (LogGap(3, 9), 409, "conflict"),
        (errors.NotFound(), 404, "not_found"),
        (errors.InvalidInput(), 422, "invalid"),
        (BadKey(), 400, "invalid"),
        (TooLarge(), 413, "invalid"),
        (errors.StoreLocked(), 503, "unavailable"),
        (errors.CheckpointError(), 500, "unavailable"),
    ],
)
def test_each_error_has_its_status_and_code(
    error: errors.FlashError, status: int, code: str
) -> None:
    assert (status_of(error).number, status_of(error).code) == (status, code)


@given(st.text(st.characters(exclude_categories=())), st.floats())
def test_every_log_line_is_one_line_of_strict_json(text: str, number: float) -> None:
    record = logging.LogRecord("x", logging.INFO, "f", 1, "%s", (text,), None)
    record.task, record.value = text, number
    line = JsonLines().format(record)
    assert line.isascii()
    assert "\n" not in line
    parsed = json.loads(line, parse_constant=pytest.fail)
    assert parsed["event"] == "message"
    assert parsed["value"] == (number if math.isfinite(number) else str(number))


def test_log_lines_carry_rising_numbers_and_arrive_in_order() -> None:
    stream = StringIO()
    names = ("flashruntime", "uvicorn", "uvicorn.error", "uvicorn.access")
    before = {name: vars(logging.getLogger(name)).copy() for name in names}
    log = logging.getLogger("flashruntime.x")
    with jsonlog.running(stream):
        for number in range(2):
            log.info("n", extra={"event": "tick", "number": number})
    log.info("n", extra={"event": "tick", "number": 2})
    for name, state in before.items():
        vars(logging.getLogger(name)).update(state)
    lines = [json.loads(line) for line in stream.getvalue().splitlines()]
    assert [(line["seq"], line["event"], line["number"]) for line in lines] == [
        (1, "tick", 0),
        (2, "tick", 1),
        (3, "tick", 2),
    ]


@pytest.mark.parametrize(
    "content",
    [
        b"[" + b"[]," * 1_300_000 + b"[]]",
        b"{" + b",".join(b'"%d":0' % number for number in range(150_001)) + b"}",
        b'{"spec":{"inputs":[' + b"0," * 150_001 + b"0]}}",
        b'{"spec":[' + b'{"a":{"b":0}},' * 76_000 + b"0]}",
    ],
)
def test_a_small_body_cannot_become_many_objects_or_many_complaints(content: bytes) -> None:
    """It would fill the coordinator's memory and stop its event loop for everybody."""
    with pytest.raises(TooLarge):
        loaded(content)


def test_the_largest_fan_out_is_taken() -> None:
    tasks = b",".join(b'{"lr":%d,"seed":1,"name":"x"}' % number for number in range(100_000))
    assert len(loaded(b'{"spec":{"task_params":[' + tasks + b"]}}")["spec"]["task_params"]) == 10**5


def loaded(content: bytes) -> Any:
    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": content, "more_body": False}

    async def load() -> Any:
        request = StrictRequest({"type": "http", "method": "POST", "headers": []}, receive)
        await request.load()
        return await request.json()

    return asyncio.run(load())
