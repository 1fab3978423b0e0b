"""Public doubles: a clock that stands still, and a coordinator of one's own on a loopback port."""

import os
import socket
import subprocess
import sys
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from time import monotonic
from typing import Self

from flashruntime.client import CoordinatorClient
from flashruntime.errors import FlashError

START_TIMEOUT_S = 20.0
STOP_TIMEOUT_S = 10.0
_POLL_S = 0.02
_ROOT = Path(__file__).resolve().parent.parent


class ManualClock:
    """A clock that moves only when told to."""

    def __init__(self, start: datetime = datetime(2026, 1, 1, tzinfo=UTC)) -> None:
        self._wall = start
        self._mono_ns = 1_000_000_000

    def monotonic_ns(self) -> int:
        """Nanoseconds since an arbitrary instant."""
        return self._mono_ns

    def utc_now(self) -> datetime:
        """Aware UTC wall-clock time."""
        return self._wall

    def advance(self, seconds: float) -> None:
        """Let time pass."""
        self._mono_ns += round(seconds * 1e9)
        self._wall += timedelta(seconds=seconds)

    def jump_wall(self, seconds: float) -> None:
        """Set the wall clock forward or back, as an administrator or NTP would."""
        self._wall += timedelta(seconds=seconds)


class CoordinatorProcess:
    """A real coordinator below `root`, as a process of its own; start it as a context manager.

    It keeps its port, ledger and artifacts over `kill` and `start`. What it printed is in
    `root/coordinator.log` (its own log lines) and `root/coordinator.err`.
    """

    def __init__(self, root: Path, env: Mapping[str, str] | None = None) -> None:
        self.root = root
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self.log = root / "coordinator.log"
        self.errors = root / "coordinator.err"
        self._env = dict(env or {})
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()

    @property
    def pid(self) -> int:
        """Process id of the running coordinator."""
        return self._running.pid

    def client(self, timeout_s: float = 10.0, token: str | None = None) -> CoordinatorClient:
        """Return a new client of this coordinator; close it after use."""
        return CoordinatorClient(self.url, timeout_s=timeout_s, token=token)

    def launch(self) -> subprocess.Popen[bytes]:
        """Start a process with this root and port, without waiting for it."""
        env = {
            **{name: os.environ[name] for name in os.environ if "FLASHML_TOKEN" not in name},
            "FLASHML_LEDGER_DIR": str(self.root / "ledger"),
            "FLASHML_ARTIFACT_DIR": str(self.root / "artifacts"),
            "PYTHONPATH": str(_ROOT),
        }
        command = [sys.executable, "-m", "uvicorn", "flashruntime.service.app:app"]
        command += ["--host", "127.0.0.1", "--port", str(self.port)]
        command += ["--timeout-graceful-shutdown", "1"]
        with self.log.open("ab") as out, self.errors.open("ab") as err:
            return subprocess.Popen(command, env=env | self._env, stdout=out, stderr=err)

    def start(self) -> None:
        """Start and wait until it is ready; FlashError with its last words if it ends."""
        self._process = self.launch()
        deadline = monotonic() + START_TIMEOUT_S
        with self.client() as client:
            while not client.healthy():
                if self._ended_within(_POLL_S) or monotonic() > deadline:
                    words = self.errors.read_text(errors="replace")[-2_000:]
                    self.kill()
                    raise FlashError(f"the coordinator did not become ready: {words}")

    def kill(self) -> None:
        """Kill it with SIGKILL; harmless if it has ended."""
        if self._process is not None:
            self._process.kill()
            self._process.wait(STOP_TIMEOUT_S)
            self._process = None

    def stop(self) -> float:
        """Send SIGTERM; return the seconds until it ended."""
        began = monotonic()
        self._running.terminate()
        self._running.wait(STOP_TIMEOUT_S)
        self._process = None
        return monotonic() - began

    @property
    def _running(self) -> subprocess.Popen[bytes]:
        if self._process is None:
            raise FlashError("the coordinator is not running; start it first")
        return self._process

    def _ended_within(self, seconds: float) -> bool:
        try:
            self._running.wait(seconds)
        except subprocess.TimeoutExpired:
            return False
        return True


def free_port() -> int:
    """Return a loopback port that nobody listens on at this moment."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
