"""`flashruntime verify-resume` on training scripts: proven where exact, and named where not."""

import textwrap

import pytest

from tests.unit.torch_helper.conftest import DIGITS

pytestmark = pytest.mark.torch

DROPOUT = """
    import torch
    from torch import nn
    import flashruntime.torch as ft
    from flashruntime.torch import rng

    rng.restore = lambda streams: None
    torch.manual_seed(0)
    torch.set_num_threads(1)
    x, y = torch.randn(64, 8), torch.randn(64, 1)
    model = nn.Sequential(nn.Linear(8, 16), nn.Dropout(0.5), nn.Linear(16, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    ft.prepare(model, optimizer)
    for step in range(ft.start_step() + 1, 41):
        optimizer.zero_grad()
        nn.functional.mse_loss(model(x), y).backward()
        optimizer.step()
        ft.checkpoint(model, optimizer, step=step, every=2)
"""

RANKS = """
    import random
    import numpy
    import torch
    from torch import nn
    from torch.utils.data import DataLoader
    import flashruntime.torch as ft

    for seed in (torch.manual_seed, random.seed, numpy.random.seed):
        seed(ft.rank())
    torch.set_num_threads(1)
    model = nn.Sequential(nn.Linear(1, 8), nn.Dropout(0.5), nn.Linear(8, 1))
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    loader = DataLoader(list(range(50)), batch_size=5, shuffle=True, drop_last=True)
    model, optimizer, loader = ft.prepare(model, optimizer, loader)
    step = ft.start_step()
    while step < 300:
        for ids in loader:
            optimizer.zero_grad()
            model(ids.float().unsqueeze(1) / 50).pow(2).mean().backward()
            optimizer.step()
            step += 1
            ft.checkpoint(model, optimizer, step=step, every=10)
            if step == 300:
                break
"""


def test_digits_is_exact_under_three_kills(verify):
    command = "python digits.py --steps 40 --every 4 --width 64"
    status, shown = verify(command, "--source", DIGITS.parent, "--kills", 3, "--seed", 2)
    assert status == 0, shown
    assert "proven: 3 of 3 kills landed" in shown
    assert "40 batches in 40 steps: each sample exactly once an epoch" in shown
    assert "metrics: accuracy, loss, sample_chain, samples_seen, steps, weights_sha256" in shown
    left_out = next(line for line in shown.splitlines() if "two undisturbed runs differ" in line)
    assert "RNG stream numpy" in left_out


def test_the_transformer_is_exact_under_two_kills(verify):
    """Dropout, AdamW, a schedule, and workers that alter shuffled data at random."""
    command = "python transformer.py --steps 40 --every 4 --print-every 10"
    status, shown = verify(command, "--source", DIGITS.parent, "--kills", 2, "--seed", 4)
    assert status == 0, shown
    assert "proven: 2 of 2 kills landed" in shown
    assert "40 batches in 40 steps: each sample exactly once an epoch" in shown
    assert "samples_seen, steps, text_sha256, weights_sha256" in shown


@pytest.mark.bench_stress
@pytest.mark.timeout(900)
@pytest.mark.parametrize("ranks", [1, 2])
@pytest.mark.parametrize("script", ["digits.py --width 64", "transformer.py"])
def test_a_job_is_exact_under_twenty_kills(verify, script, ranks):
    words = ("--source", DIGITS.parent, "--kills", 20, "--seed", 7, "--nproc", ranks)
    status, shown = verify(f"python {script} --steps 100 --every 5", *words)
    assert status == 0, shown
    assert "proven: 20 of 20 kills landed" in shown


def test_a_stream_that_is_not_restored_is_caught_by_name(verify, tmp_path):
    (tmp_path / "source").mkdir()
    (tmp_path / "source" / "train.py").write_text(textwrap.dedent(DROPOUT))
    words = ("--source", tmp_path / "source", "--kills", 1, "--seed", 3)
    status, shown = verify("python train.py", *words)
    assert status == 1
    assert "NOT PROVEN: the resumed run differs from the undisturbed one" in shown
    assert "differs: RNG stream torch: " in shown
    assert "differs: tensor model.0.weight: " in shown


@pytest.mark.bench_stress
def test_two_ranks_are_proven_exact(verify, tmp_path):
    (tmp_path / "source").mkdir()
    (tmp_path / "source" / "train.py").write_text(textwrap.dedent(RANKS))
    words = ("--source", tmp_path / "source", "--nproc", 2, "--kills", 3, "--seed", 1)
    status, shown = verify("python train.py", *words)
    assert status == 0, shown
    assert "went on from a checkpoint" in shown
    assert "300 batches in 300 steps on each rank, over all ranks together: each sample" in shown
    assert "of 2 ranks" in shown
    assert "RNG streams python, torch, numpy of each rank" in shown
    assert "two undisturbed runs differ" not in shown
