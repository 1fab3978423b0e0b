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


@pytest.fixture(params=["1", "0"], ids=["forked", "torchrun"], autouse=True)
def warm(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FLASHML_WARM_START", request.param)


def run(tmp_path: Path, mode: str) -> flash.Run:
    (tmp_path / "source").mkdir()
    (tmp_path / "source" / "train.py").write_text(SCRIPT)
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
    assert str(done.attempts[0].failure_class) in {
        "communication_error",
        "worker_crash",
        "unknown",
        "resource_exhausted",
    }
