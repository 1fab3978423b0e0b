"""Training runs in forked children of a process that holds torch, killed where a test says so."""

import atexit
import json
import os
import runpy
import signal
import socket
import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

# The image that runs these tests has torch; elsewhere this module cannot even be read.
collect_ignore = [] if find_spec("torch") else ["test_state_difference.py"]
ROOT = Path(__file__).parents[3]
DIGITS = ROOT / "chaos" / "payloads" / "digits.py"


@dataclass
class Ended:
    """How a child ended and what it printed; `lines` are the JSON lines."""

    status: int
    output: str

    @property
    def lines(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.output.splitlines() if line.startswith("{")]

    @property
    def exit_code(self) -> int:
        return os.waitstatus_to_exitcode(self.status)

    def events(self, name: str) -> list[dict[str, Any]]:
        return [line for line in self.lines if line.get("event") == name]


@pytest.fixture
def forked(tmp_path: Path) -> Callable[..., Ended]:
    """Run an action in a forked child in `folder`; `kill_at(line)` picks signal and moment."""
    import sklearn.datasets
    import torch

    sklearn.datasets.load_digits()
    torch.set_num_threads(1)
    torch.optim.Adam([torch.zeros(1, requires_grad=True)])

    def run(
        action: Callable[[], object],
        folder: Path = tmp_path,
        kill_at: Callable[[str], int | None] = lambda _: None,
    ) -> Ended:
        folder.mkdir(parents=True, exist_ok=True)
        reader, writer = os.pipe()
        child = os.fork()
        if child == 0:
            os.close(reader)
            _run_child(action, folder, writer)
        os.close(writer)
        output = []
        with os.fdopen(reader) as pipe:
            for line in pipe:
                output.append(line)
                number = kill_at(line)
                if number:
                    os.kill(child, number)
        return Ended(os.waitpid(child, 0)[1], "".join(output))

    return run


def _run_child(action: Callable[[], object], folder: Path, writer: int) -> None:
    code = 1
    try:
        os.chdir(folder)
        os.dup2(writer, 1)
        os.dup2(writer, 2)
        sys.stdout = os.fdopen(1, "w", buffering=1, closefd=False)
        sys.stderr = os.fdopen(2, "w", buffering=1, closefd=False)
        action()
        code = 0
    except SystemExit as stop:
        code = stop.code if isinstance(stop.code, int) else int(stop.code is not None)
    except BaseException as error:  # noqa: BLE001 (a child must never run the rest of the suite)
        sys.stderr.write(f"{type(error).__name__}: {error}\n")
    finally:
        _end_saves()
        atexit._run_exitfuncs()
        sys.stdout.flush()
        os._exit(code)


def _end_saves() -> None:
    """Wait for saves in flight, as the end of an interpreter does."""
    for thread in threading.enumerate():
        if thread is not threading.current_thread() and not thread.daemon:
            thread.join()


@pytest.fixture
def digits(forked: Callable[..., Ended]) -> Callable[..., Ended]:
    """Run the digits payload with the given arguments."""

    def run(*arguments: object, **options: Any) -> Ended:
        def action() -> None:
            sys.argv = ["digits.py", *map(str, arguments)]
            runpy.run_path(str(DIGITS), run_name="__main__")

        return forked(action, **options)

    return run


@pytest.fixture
def kill_on() -> Callable[..., Callable[[str], int | None]]:
    """Build a trigger: send a signal once, when a line with this sequence number appears."""

    def build(step: int, number: int = signal.SIGKILL) -> Callable[[str], int | None]:
        def trigger(line: str) -> int | None:
            return number if f'"seq": {step},' in line else None

        return trigger

    return build


@pytest.fixture
def group(tmp_path: Path, forked: Callable[..., Ended]) -> Callable[..., list[Ended]]:
    """Run an action in ranks that are forked children; `on_line(rank, line)` may give a signal.

    It is sent to `target`: None means to every rank, else to that one.
    """

    def run(
        action: Callable[[], object],
        size: int = 2,
        folder: Path = tmp_path,
        *,
        on_line: Callable[[int, str], int | None] = lambda _rank, _line: None,
        target: int | None = None,
        env: dict[str, str] | None = None,
    ) -> list[Ended]:
        folder.mkdir(parents=True, exist_ok=True)
        place = {"WORLD_SIZE": str(size), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": _free_port()}
        children: list[int] = []
        pipes: list[int] = []
        for rank in range(size):
            reader, writer = os.pipe()
            child = os.fork()
            if child == 0:
                os.close(reader)
                own = {"RANK": str(rank), "LOCAL_RANK": str(rank), "LOCAL_WORLD_SIZE": str(size)}
                os.environ.update(place | own | (env or {}))
                _run_child(action, folder, writer)
            os.close(writer)
            children.append(child)
            pipes.append(reader)

        def hit(number: int) -> None:
            for child in children if target is None else [children[target]]:
                os.kill(child, number)

        def read(rank: int) -> str:
            lines = []
            with os.fdopen(pipes[rank]) as pipe:
                for line in pipe:
                    lines.append(line)
                    number = on_line(rank, line)
                    if number:
                        hit(number)
            return "".join(lines)

        late = threading.Timer(60, lambda: [os.kill(child, signal.SIGKILL) for child in children])
        late.start()
        with ThreadPoolExecutor(size) as pool:
            outputs = list(pool.map(read, range(size)))
        late.cancel()
        late.join()
        statuses = [os.waitpid(child, 0)[1] for child in children]
        return [Ended(*each) for each in zip(statuses, outputs, strict=True)]

    return run


def _free_port() -> str:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return str(probe.getsockname()[1])


@pytest.fixture
def verify(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> Callable[..., tuple[int, str]]:
    """Run the verb; return its exit code, and what it printed."""
    from flashruntime.cli import main

    monkeypatch.setenv("PYTHONPATH", str(ROOT))

    def run(command: str, *words: object) -> tuple[int, str]:
        status = main(
            ["verify-resume", command, "--output-dir", str(tmp_path / "out"), *map(str, words)]
        )
        shown = capsys.readouterr()
        return status, shown.out + shown.err

    return run
