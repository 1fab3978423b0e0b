"""Bare subprocesses: what a user has without any runtime."""

import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from benchmarks.schema import BenchError

TIMEOUT_S = 600.0
TAIL = 2_000


def run(
    argv: Sequence[str],
    cwd: Path,
    env: Mapping[str, str] | None = None,
    *,
    timeout_s: float = TIMEOUT_S,
    ok: bool = True,
) -> str:
    """Run a command to its end in `cwd` and return what it printed; nothing of it is left.

    BenchError with the end of it where it fails; with ok=False any exit code will do.
    """
    with tempfile.TemporaryFile() as output:
        process = subprocess.Popen(
            argv,
            cwd=cwd,
            env={**os.environ, **(env or {})},
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        command = " ".join(map(str, argv))
        # Popen.wait with a timeout polls every 50 ms, which would be charged to the comparator.
        watchdog = threading.Timer(timeout_s, _kill_group, [process])
        begun_s = time.monotonic()
        watchdog.start()
        try:
            os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
        finally:
            watchdog.cancel()
            _kill_group(process)
            code = process.wait()
        if time.monotonic() - begun_s >= timeout_s:
            raise BenchError(f"`{command}` did not end within {timeout_s:.0f} s")
        output.seek(0)
        printed = output.read().decode("utf-8", "replace")
    if ok and code:
        raise BenchError(f"`{command}` ended with {code}: {printed[-TAIL:]}")
    return printed


def _kill_group(process: subprocess.Popen[bytes]) -> None:
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)


def result(
    script: Path,
    *words: object,
    cwd: Path,
    env: Mapping[str, str] | None = None,
    timeout_s: float = TIMEOUT_S,
) -> dict[str, Any]:
    """Run a payload that prints one JSON object on a line, and return the last such object.

    The runtime's own events, which may come after it, are passed over.
    """
    argv = [sys.executable, str(script), *map(str, words)]
    printed = run(argv, cwd, env, timeout_s=timeout_s)
    for line in reversed(printed.splitlines()):
        with suppress(ValueError):
            found = json.loads(line)
            if isinstance(found, dict) and "event" not in found:
                return found
    raise BenchError(f"{script.name} printed no result: {printed[-TAIL:]}")
