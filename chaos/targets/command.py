"""A command of the docker CLI that leaves no process behind, however it or its caller ends."""

import os
import shutil
import signal
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from chaos.model import CannotRun


@dataclass(frozen=True, slots=True)
class Ended:
    """How a command ended."""

    exit_code: int
    errors: str

    @property
    def last_words(self) -> str:
        """The end of what it wrote to stderr, on one line."""
        return " | ".join(self.errors.strip().splitlines()[-3:])


def run(words: Sequence[str], variables: Mapping[str, str], timeout_s: float) -> Ended:
    """Run `docker WORDS`; raise CannotRun where there is no such command, or not in time.

    It has a process group of its own, which is killed when waiting for it ends early; where the
    harness itself is killed, the kernel kills the command (on Linux, by setpriv).
    """
    guard = ["setpriv", "--pdeathsig", "KILL"] if shutil.which("setpriv") else []
    try:
        process = subprocess.Popen(
            [*guard, "docker", *words],
            env=os.environ | variables,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            errors="replace",
            start_new_session=True,
        )
    except OSError as error:
        raise CannotRun(f"docker cannot be run ({error}); `make chaos` gets it") from error
    try:
        _, errors = process.communicate(timeout=timeout_s)
    except subprocess.TimeoutExpired as error:
        told = " ".join(["docker", *words[:2]])
        raise CannotRun(f"`{told}` took more than {timeout_s:g} s") from error
    finally:
        if process.returncode is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.communicate()
    return Ended(process.returncode, errors)
