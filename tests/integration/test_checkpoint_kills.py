"""SIGKILL at random moments of a loop that saves 8 MB a step: no resume is ever a bad one."""

import logging
import os
import random
import select
import signal
from pathlib import Path

import pytest

from flashruntime.attempt import Attempt, Settings
from flashruntime.checkpoint import Claim

SIZE_BYTES = 8 * 1024 * 1024
pytestmark = pytest.mark.integration


def content(step: int) -> dict[str, bytes]:
    """Parts that only this step can have."""
    block = random.Random(step).randbytes(4096)
    return {"model": block * (SIZE_BYTES // 4096), "step": str(step).encode()}


def train(root: Path, number: int, started: int) -> None:
    """Go on from the newest checkpoint, check it, and save each step behind the next."""
    settings = Settings(root / "ckpt", root, Claim(f"attempt-{number}", "job-1", number))
    attempt = Attempt(settings)
    found = attempt.resume()
    step = found.step if found else 0
    is_good = found is None or dict(found.parts) == content(step)
    os.write(started, b"%d %d\n" % (step, is_good))
    while True:
        step += 1
        attempt.save_async(step, content(step), framework="none")


def killed(root: Path, number: int, delay_s: float) -> tuple[int, bool]:
    """Let an attempt run for `delay_s` after it has resumed; return what it said."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reader)
        devnull = os.open(os.devnull, os.O_WRONLY)
        os.dup2(devnull, 1)
        try:
            train(root, number, writer)
        finally:
            os._exit(1)
    os.close(writer)
    with os.fdopen(reader) as pipe:
        said = pipe.readline()
        select.select([pipe], [], [], delay_s)
        os.kill(child, signal.SIGKILL)
    assert os.WTERMSIG(os.waitpid(child, 0)[1]) == signal.SIGKILL
    step, is_good = said.split()
    return int(step), is_good == "1"


def storm(root: Path, kills: int) -> None:
    chance = random.Random(kills)
    in_window, resumed = 0, []
    for number in range(kills):
        step, is_good = killed(root, number, chance.uniform(0.0, 0.2))
        assert is_good, f"the checkpoint of step {step} is not what was saved"
        resumed.append(step)
        in_window += any((root / "ckpt" / ".staging").glob("*/step-*"))
    last = Attempt(Settings(root / "ckpt", root, Claim("judge", "job-1", kills)))
    found = last.resume()
    assert found is not None
    assert dict(found.parts) == content(found.step)
    assert resumed == sorted(resumed), "no attempt goes on from an older step than the one before"
    assert found.step >= resumed[-1]
    assert last.rejections == []
    assert in_window >= kills // 10, f"only {in_window} of {kills} kills hit a save"
    logging.getLogger(__name__).info(
        "%d kills, %d in the write window, %d steps", kills, in_window, found.step
    )


def test_ten_kills(tmp_path):
    storm(tmp_path, 10)


@pytest.mark.bench_stress
def test_two_hundred_kills(tmp_path):
    storm(tmp_path, 200)
