"""What a job says about its progress, whatever it writes."""

import json
import math
import os
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from flashruntime.launch.error_file import read_errors
from flashruntime.launch.progress import (
    MAX_METRICS_BYTES,
    Progress,
    log_tail,
    parse_metrics,
    read_progress,
)
from flashruntime.protocol.base import strict_dumps

ANY_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
)
same_directory = settings(suppress_health_check=[HealthCheck.function_scoped_fixture])


def write(tmp_path: Path, content: str | bytes, name: str = "metrics.json") -> Path:
    path = tmp_path / name
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


@same_directory
@given(ANY_JSON)
def test_metrics_are_flat_and_strict_json_or_nothing(tmp_path: Path, value: object) -> None:
    metrics, warnings = parse_metrics(write(tmp_path, json.dumps(value)))
    if not isinstance(value, dict):
        assert metrics is None
        assert warnings
        return
    assert metrics is not None
    strict_dumps(metrics)
    assert not any(isinstance(item, dict | list) for item in metrics.values())
    nested = [item for item in value.values() if isinstance(item, dict | list)]
    assert len(warnings) == len(nested)


@same_directory
@given(st.binary())
def test_no_bytes_break_the_parser(tmp_path: Path, content: bytes) -> None:
    metrics, warnings = parse_metrics(write(tmp_path, content))
    assert metrics is not None or warnings


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ('{"x": NaN}', None),
        ('{"x": -Infinity}', None),
        ('{"x": 1e400}', None),
        ('{"x": 12345678901234567890}', "12345678901234567890"),
        ('{"x": true}', True),
        ('{"x": 1, "x": 2}', 2),
        ('\ufeff{"x": 0.5}', 0.5),
        ('{"x": "\\ud800"}', "?"),
    ],
)
def test_values_that_do_not_fit_are_made_to(tmp_path: Path, text: str, value: object) -> None:
    """Cases 075 and 079."""
    metrics, warnings = parse_metrics(write(tmp_path, text))
    assert metrics == {"x": value}
    assert warnings == []


def test_an_integer_of_5000_digits_becomes_text(tmp_path: Path) -> None:
    metrics, _ = parse_metrics(write(tmp_path, '{"n": %s}' % ("1" * 5000)))
    assert metrics == {"n": "1" * 5000}


def test_a_huge_file_is_not_read_whole(tmp_path: Path) -> None:
    metrics, warnings = parse_metrics(write(tmp_path, b" " * (MAX_METRICS_BYTES + 1)))
    assert metrics is None
    assert "larger than" in warnings[0]


@same_directory
@given(ANY_JSON | st.fixed_dictionaries({"step": ANY_JSON, "resumed_from": ANY_JSON}))
def test_a_step_is_a_whole_number_or_unknown(tmp_path: Path, value: object) -> None:
    progress = read_progress(write(tmp_path, json.dumps(value), "step.json"))
    for step in (progress.step, progress.resumed_from):
        assert step is None or (type(step) is int and 0 <= step <= 2**53)


def test_steps_are_read_and_a_missing_file_is_no_progress(tmp_path: Path) -> None:
    path = write(tmp_path, '{"step": 40, "resumed_from": null, "checkpoint_step": 40}')
    assert read_progress(path) == Progress(step=40, checkpoint_step=40)
    assert read_progress(tmp_path / "none") == Progress()


@same_directory
@given(st.binary(max_size=200))
def test_a_tail_is_valid_text(tmp_path: Path, content: bytes) -> None:
    tail = log_tail(write(tmp_path, content, "log"))
    assert json.loads(strict_dumps(tail)) == tail
    assert "\0" not in tail


def test_a_tail_is_short_and_shows_the_last_state_of_a_progress_bar(tmp_path: Path) -> None:
    bars = b"".join(b"\r%d/5000" % number for number in range(5000))
    content = b"x" * 100_000 + b"\n" + bars + b"\nKeyError: 'epoch'\r\n"
    tail = log_tail(write(tmp_path, content, "log"))
    assert tail == "4999/5000\nKeyError: 'epoch'\n" or tail.endswith(
        "4999/5000\nKeyError: 'epoch'\n"
    )
    assert len(tail) < 20_000


def test_a_file_that_a_job_replaced_by_a_pipe_or_a_link_blocks_nobody(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "link").symlink_to(write(tmp_path, '{"step": 1}', "other"))
    for name in ("pipe", "link"):
        assert read_progress(tmp_path / name) == Progress()
        assert parse_metrics(tmp_path / name)[0] is None
        assert log_tail(tmp_path / name) == ""
        assert read_errors(tmp_path / name) == {}


def test_infinity_is_never_passed_on(tmp_path: Path) -> None:
    metrics, _ = parse_metrics(write(tmp_path, json.dumps({"x": math.inf})))
    assert metrics == {"x": None}
