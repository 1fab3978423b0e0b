"""Two gloo ranks, forked from a warm interpreter or under the real torchrun; needs PyTorch."""

from pathlib import Path

import pytest

import flashruntime as flash
from flashruntime.integrations.pytorch import ddp

pytestmark = pytest.mark.torch
SCRIPT = """
import json, os, signal, sys, time
import torch, torch.distributed as dist
dist.init_process_group("gloo")
rank, first = dist.get_rank(), os.environ["FLASHML_RESTART_COUNT"] == "0"
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(4, 1))
for step in range(3):
    model(torch.full((2, 4), float(rank))).sum().backward()
    if sys.argv[1] == "bug" and rank == 1: raise ValueError("bad label")
    if sys.argv[1] == "kill" and rank == 1 and first: os.kill(os.getpid(), signal.SIGKILL)
grad = float(model.module.weight.grad.sum())
if rank == 0: json.dump({"world": dist.get_world_size(), "grad": grad}, open("metrics.json", "w"))
dist.destroy_process_group()
"""

RESUMING = """
import os, signal
import torch
from torch.utils.data import DataLoader
import flashruntime.torch as ft
torch.manual_seed(0)
torch.set_num_threads(1)
model = torch.nn.Linear(1, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
model, optimizer, loader = ft.prepare(model, optimizer, DataLoader(list(range(64)), 4, True))
step = start = ft.start_step()
while step < 16:
    for ids in loader:
        optimizer.zero_grad()
        model(ids.float().unsqueeze(1) / 64).pow(2).mean().backward()
        optimizer.step()
        step += 1
        ft.checkpoint(model, optimizer, step=step, every=2)
        if step == 11 and ft.rank() == 1 and os.environ["FLASHML_RESTART_COUNT"] == "0":
            os.kill(os.getpid(), signal.SIGKILL)
ft.log_metrics({"start": start, "world": ft.world_size(), "weight": model.module.weight.item()})
"""


@pytest.fixture(params=["1", "0"], ids=["forked", "torchrun"], autouse=True)
def warm(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FLASHML_WARM_START", request.param)


def run(tmp_path: Path, mode: str, script: str = SCRIPT) -> flash.Run:
    (tmp_path / "source").mkdir()
    (tmp_path / "source" / "train.py").write_text(script)
    work = ddp("train.py", tmp_path / "source", script_args=mode)
    return flash.submit(work, tmp_path / "out", max_restarts=1, watch=False)


def test_ranks_train_together(tmp_path: Path) -> None:
    done = run(tmp_path, "well")
    assert done.state is flash.RunState.SUCCEEDED, done.logs()
    assert (done.trials[0]["world"], done.trials[0]["grad"]) == (2, 12.0)


def test_a_bug_in_one_rank_ends_the_run_at_once_under_its_own_name(tmp_path: Path) -> None:
    """F3: the other rank's lost connection and the wrapper's error are not the cause."""
    failed = run(tmp_path, "bug")
    assert (failed.state, len(failed.attempts)) == (flash.RunState.FAILED, 1)
    assert failed.reason.startswith("ValueError: bad label [rule ")


def test_a_killed_rank_restarts_all_of_them(tmp_path: Path) -> None:
    done = run(tmp_path, "kill")
    assert (done.state, len(done.attempts)) == (flash.RunState.SUCCEEDED, 2), done.logs()
    assert str(done.attempts[0].failure_class) in {"communication_error", "worker_crash", "unknown"}


def test_a_job_that_lost_a_rank_goes_on_from_the_checkpoint_of_all(tmp_path: Path) -> None:
    done = run(tmp_path, "", RESUMING)
    assert (done.state, len(done.attempts)) == (flash.RunState.SUCCEEDED, 2), done.logs()
    (trial,) = done.trials
    assert (trial["world"], trial["start"]) == (2, trial["resumed_from"])
    assert trial["start"] in {8, 10}
