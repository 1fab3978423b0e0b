"""Attempts as real processes on one tree: killed, frozen and thawed, or simply overtaken."""

import os
import random
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from flashruntime.checkpoint import Chain, Claim, inspect

pytestmark = pytest.mark.integration

ATTEMPT = """
import os, random, sys
from pathlib import Path
from flashruntime.checkpoint import Chain, Claim, Snapshot
from flashruntime.errors import Superseded
root, number = Path(sys.argv[1]), int(sys.argv[2])
try:
    chain = Chain.begin(root, Claim(f"attempt-{number}", "job-1", number), keep=2)
    found = chain.resume()
    step = found.step if found else 0
    assert not found or found.parts["step"] == str(step).encode()
    print("begun", step, flush=True)
    sizes = random.Random(number)
    while True:
        step += 1
        weights = os.urandom(sizes.choice([1, 10_000, 300_000]))
        chain.save(Snapshot(step, {"step": str(step).encode(), "weights": weights}))
        print("saved", step, flush=True)
except Superseded:
    print("superseded", flush=True)
"""


class Attempts:
    """Starts one attempt after another and checks what each of them resumes from."""

    def __init__(self, root):
        self.root, self.started, self.acknowledged = root, [], 0

    def start(self):
        command = [sys.executable, "-c", ATTEMPT, str(self.root), str(len(self.started))]
        environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
        process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment)
        self.started.append(process)
        begun = self.read(process, "begun")
        assert begun >= self.acknowledged, "an acknowledged checkpoint of the head was lost"
        self.acknowledged = begun
        return process

    def follow(self, process, saves):
        for _ in range(saves):
            saved = self.read(process, "saved")
            assert saved == self.acknowledged + 1
            self.acknowledged = saved

    @staticmethod
    def read(process, word):
        said, number = process.stdout.readline().split()
        assert said == word
        return int(number)

    def end(self):
        for process in self.started:
            process.kill()
            process.communicate()


@pytest.mark.parametrize("seed", range(2))
def test_no_attempt_ever_loses_what_its_predecessor_was_told_is_saved(tmp_path, seed):
    chance = random.Random(seed)
    attempts = Attempts(tmp_path / "ckpt")
    frozen = []
    try:
        for _ in range(12):
            process = attempts.start()
            for zombie in frozen:
                zombie.send_signal(signal.SIGCONT)
            frozen.clear()
            attempts.follow(process, chance.randrange(12))
            fate = chance.choice(["kill", "freeze", "overtake"])
            if fate == "kill":
                process.kill()
            elif fate == "freeze":
                process.send_signal(signal.SIGSTOP)
                frozen.append(process)
        attempts.start().kill()
        for zombie in frozen:
            zombie.send_signal(signal.SIGCONT)
        for process in attempts.started:
            last = process.communicate(timeout=20)[0].split("\n")[-2:]
            assert process.returncode == -signal.SIGKILL or "superseded" in last
    finally:
        attempts.end()
    final = Chain.begin(attempts.root, Claim("final", "job-1", 99)).resume()
    assert final.step >= attempts.acknowledged
    assert {report.kind for report in inspect(attempts.root)} <= {"valid", "foreign"}
