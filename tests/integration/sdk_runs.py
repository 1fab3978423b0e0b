"""What the tests of local runs share: a directory of scripts, and runs of them."""

import os
import select
import sys
import textwrap
from pathlib import Path
from typing import Any

import flashruntime as flash

PATIENCE_S = 20.0
ROOT = Path(__file__).parents[2]


class Bench:
    """A source directory with one script, and an output directory beside it."""

    def __init__(self, root: Path) -> None:
        self.source = root / "source"
        self.output = root / "output"
        self.source.mkdir()

    def script(self, code: str, name: str = "train.py") -> Path:
        path = self.source / name
        path.write_text(textwrap.dedent(code))
        return path

    def run(
        self, code: str = "", *argv: str, options: dict[str, Any] | None = None, **workload: Any
    ) -> flash.Run:
        """Submit `python train.py argv...`, or `argv` where no code is given."""
        command = list(argv)
        if code:
            self.script(code)
            command = [sys.executable, "train.py", *argv]
        made = flash.CommandWorkload(command, source=self.source, **workload)
        chosen = {"output_dir": self.output, "watch": False, **(options or {})}
        return flash.submit(made, **chosen)


def fifo_at(path: Path) -> Path:
    os.mkfifo(path)
    return path


def await_gone(pid: int) -> None:
    """Wait for a process that is not our child to end."""
    try:
        handle = os.pidfd_open(pid)
    except ProcessLookupError:
        return
    assert select.select([handle], [], [], PATIENCE_S)[0], f"process {pid} lives on"
    os.close(handle)
