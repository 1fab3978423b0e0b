"""Schemathesis against our own OpenAPI: whatever the calls, no answer is a 5xx.

Of its findings only server errors count here; the coordinator's own log is the second witness.
"""

import json
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from flashruntime.credentials import new_token
from flashruntime.testing import CoordinatorProcess

pytestmark = pytest.mark.integration
HOOKS = '''
"""A claim may wait for a minute, and a session for ever: not in a test of many calls."""

import schemathesis


@schemathesis.hook
def before_call(context, case, kwargs):
    if isinstance(case.body, dict) and isinstance(case.body.get("wait_s"), int | float):
        case.body["wait_s"] = min(case.body["wait_s"], 0.01)
'''
ENDLESS = r"/session$|/stream$"
CALLS = 20_000
MAX_RUNS = 60


@pytest.fixture
def coordinator(tmp_path: Path) -> Iterator[CoordinatorProcess]:
    limit = {"FLASHML_MAX_ARTIFACT_BYTES": "1000000"}
    with CoordinatorProcess(tmp_path, limit) as process:
        yield process


def fuzz(
    process: CoordinatorProcess,
    seed: int,
    *options: str,
    checks: str = "not_a_server_error",
    token: str | None = None,
) -> None:
    """Make a run of many calls; its report is the message of a failure."""
    hooks = process.root / "fuzz_hooks.py"
    hooks.write_text(HOOKS)
    command = [sys.executable, "-m", "schemathesis.cli", "run", f"{process.url}/openapi.json"]
    command += ["--checks", checks, "--warnings", "off", "--no-color"]
    command += [] if token is None else ["--header", f"Authorization: Bearer {token}"]
    command += ["--exclude-path-regex", ENDLESS, "--request-timeout", "20"]
    command += ["--seed", str(seed), "--generation-database", "none", *options]
    done = subprocess.run(
        command,
        cwd=process.root,
        env={"PATH": "/usr/bin:/bin", "SCHEMATHESIS_HOOKS": "fuzz_hooks", "PYTHONPATH": "."},
        capture_output=True,
        text=True,
        check=False,
    )
    answers(process)
    assert done.returncode == 0, done.stdout[-6_000:] + done.stderr[-2_000:]


def answers(process: CoordinatorProcess) -> Counter[int]:
    """Return how often each status was answered; no line may hold a stack trace."""
    lines = [json.loads(line) for line in process.log.read_text().splitlines()]
    traces = [line["trace"][-1_500:] for line in lines if "trace" in line]
    assert not traces, traces[0]
    return Counter(line["status"] for line in lines if line["event"] == "request")


def server_errors(found: Counter[int]) -> dict[int, int]:
    return {status: count for status, count in found.items() if status >= 500}


def test_a_short_run_finds_no_server_error(coordinator: CoordinatorProcess) -> None:
    fuzz(coordinator, 1, "--max-time", "12", "--phases", "coverage,fuzzing,stateful")
    found = answers(coordinator)
    assert server_errors(found) == {}
    assert {200, 404, 422} <= set(found)
    with coordinator.client() as client:
        assert client.healthy()


def test_no_call_of_the_description_is_answered_without_a_token(tmp_path: Path) -> None:
    """The tool itself leaves out or spoils the token of calls that were let in."""
    token = new_token()
    with CoordinatorProcess(tmp_path, {"FLASHML_TOKEN": token}) as process:
        options = ("--max-time", "4", "--phases", "fuzzing", "--mode", "positive")
        checks = "ignored_auth,not_a_server_error"
        fuzz(process, 1, *options, checks=checks, token=token)
        found = answers(process)
    assert found[401] >= 5
    assert {200, 404} <= set(found)


@pytest.mark.bench_stress
@pytest.mark.timeout(3_600)
def test_20000_calls_find_no_server_error(
    coordinator: CoordinatorProcess, record_testsuite_property: Callable[[str, object], None]
) -> None:
    for seed in range(MAX_RUNS):
        fuzz(coordinator, seed, "--max-time", "60")
        found = answers(coordinator)
        assert server_errors(found) == {}
        if found.total() >= CALLS:
            break
    record_testsuite_property("answers", dict(sorted(found.items())))
    record_testsuite_property("runs", seed + 1)
    assert found.total() >= CALLS
