"""SIGKILL at random moments of training that saves 8 MB a step: what is resumed is what was."""

import os
import random
import select
import signal

import pytest

pytestmark = pytest.mark.torch
WIDTH = 1024 * 1024


class Weights:
    """A state of 8 MB that only its step can have."""

    def __init__(self):
        self.become(0)

    def become(self, step):
        import torch

        self.step = step
        self.one, self.two = torch.full((WIDTH,), float(step)), torch.arange(WIDTH) * step

    def is_whole(self, step):
        import torch

        return (
            self.step == step
            and bool((self.one == step).all())
            and torch.equal(self.two, torch.arange(WIDTH) * step)
        )

    def state_dict(self):
        return dict(vars(self))

    def load_state_dict(self, state):
        vars(self).update(state)


def session(root, number):
    from flashruntime.attempt import Attempt, Settings
    from flashruntime.checkpoint import Claim
    from flashruntime.torch.session import Session

    claim = Claim(f"attempt-{number}", "job-1", number)
    return Session(Attempt(Settings(root / "ckpt", root, claim)))


def train(root, number, started):
    weights, run = Weights(), session(root, number)
    run.prepare(weights, None, None, {})
    step = run.start_step
    os.write(started, b"%d %d\n" % (step, weights.is_whole(step)))
    while True:
        step += 1
        weights.become(step)
        run.checkpoint(weights, None, {}, step, None)


def killed(root, number, delay_s):
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reader)
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        try:
            train(root, number, writer)
        finally:
            os._exit(1)
    os.close(writer)
    with os.fdopen(reader) as pipe:
        said = pipe.readline().split()
        select.select([pipe], [], [], delay_s)
        os.kill(child, signal.SIGKILL)
    assert os.WTERMSIG(os.waitpid(child, 0)[1]) == signal.SIGKILL
    return [int(word) for word in said]


def storm(root, kills):
    import torch

    torch.set_num_threads(1)
    chance = random.Random(kills)
    in_window, resumed = 0, []
    for number in range(kills):
        step, is_whole = killed(root, number, chance.uniform(0.0, 0.3))
        assert is_whole, f"the checkpoint of step {step} is not what was saved"
        resumed.append(step)
        in_window += any((root / "ckpt" / ".staging").glob("*/step-*"))
    last, weights = session(root, kills), Weights()
    last.prepare(weights, None, None, {})
    assert weights.is_whole(last.start_step)
    assert last.attempt.rejections == []
    assert resumed == sorted(resumed)
    assert 0 < resumed[-1] <= last.start_step
    assert in_window >= kills // 10


def test_six_kills(tmp_path):
    storm(tmp_path, 6)


@pytest.mark.bench_stress
def test_two_hundred_kills(tmp_path):
    storm(tmp_path, 200)
