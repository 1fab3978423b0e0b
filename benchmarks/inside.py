"""Runs the whole command inside the runtime image, where torch is.

All of it, so that ours and every comparator have one place, one interpreter and one disk. The
checkout is mounted read-only and copied, so that its modules are compiled as an installation's are.
"""

import os
import shlex
import subprocess
import uuid
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from benchmarks import host
from benchmarks.schema import UsageError

COMMAND_VARIABLE = "FLASHML_BENCH_COMMAND"
IMAGES = ("flashruntime/bench:local", "flashruntime/runtime:local")
LABEL = "dev.flashruntime.owner=flashruntime"
_ROOT = Path(__file__).parents[1]
_START = (
    "mkdir /scratch/site && cp -r /src/flashruntime /src/chaos /src/benchmarks /scratch/site && "
    "cd /scratch/site && python3 -m compileall -q . && "
    'exec python3 -m benchmarks "$@" --here --scratch /scratch'
)
ENGINE_TIMEOUT_S = 60


def image() -> tuple[str, str]:
    """Return name and id of the image: the one with the comparators, else the runtime's."""
    for name in IMAGES:
        command = ["docker", "image", "inspect", "--format", "{{.Id}}", name]
        with suppress(OSError, subprocess.SubprocessError):
            found = subprocess.run(
                command, check=True, capture_output=True, text=True, timeout=ENGINE_TIMEOUT_S
            )
            return name, found.stdout.strip()
    raise UsageError(
        f"there is no torch here, and no image {IMAGES[-1]} to run in: `make bench` makes it, "
        "`--here` measures on this host what needs no torch"
    )


def run(arguments: Sequence[str], out: Path, scratch: Path, command: str) -> int:
    """Run `python -m benchmarks ARGUMENTS` in the image; return its exit code.

    The document appears at `out`, owned by the caller. SIGINT is passed on.
    """
    name, image_id = image()
    container = f"flashruntime-bench-{uuid.uuid4().hex[:12]}"
    argv = [
        "docker", "run", "--rm", "--name", container, "--label", LABEL,
        "--network", "none", "--shm-size", "1g", "--cap-drop", "ALL",
        "--security-opt", "no-new-privileges", "--user", f"{os.getuid()}:{os.getgid()}",
        "--volume", f"{_ROOT}:/src:ro", "--volume", f"{scratch.resolve()}:/scratch",
        "--volume", f"{out.parent.resolve()}:/results",
        *_environment(f"{name} {image_id[:19]}", command),
        "--entrypoint", "sh", name, "-c", _START, "bench",
        *arguments, "--out", f"/results/{out.name}",
    ]  # fmt: skip
    process = subprocess.Popen(argv, start_new_session=True)
    try:
        return _wait(process)
    finally:
        with suppress(OSError, subprocess.SubprocessError):
            subprocess.run(
                ["docker", "rm", "--force", container],
                check=False, capture_output=True, timeout=ENGINE_TIMEOUT_S,
            )  # fmt: skip


def _environment(place: str, command: str) -> list[str]:
    values = {
        COMMAND_VARIABLE: command,
        host.PLACE_VARIABLE: f"image {place}",
        host.COMMIT_VARIABLE: host.commit(_ROOT) or "",
        "PYTHONDONTWRITEBYTECODE": "",
        "PYTHONPATH": "/scratch/site",
        "HOME": "/scratch",
        "USER": "bench",
        "TMPDIR": "/scratch",
    }
    return [word for name, value in values.items() for word in ("--env", f"{name}={value}")]


def _wait(process: subprocess.Popen[bytes]) -> int:
    try:
        return process.wait()
    except KeyboardInterrupt:
        process.send_signal(2)
        return process.wait()


def words(arguments: Sequence[str]) -> str:
    """Return a command line as a user types it."""
    return shlex.join(["python", "-m", "benchmarks", *arguments])
