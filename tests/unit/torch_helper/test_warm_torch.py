"""Scripts forked from an interpreter that holds torch, beside the same started afresh."""

import json
from pathlib import Path

import pytest

import flashruntime as flash

pytestmark = pytest.mark.torch
SCRIPT = """
import json, os, sys, warnings
import numpy as np
import torch
from torch.utils.data import DataLoader, TensorDataset

loader = DataLoader(TensorDataset(torch.arange(8.0)), batch_size=4, shuffle=True, num_workers=2)
seen = sorted(float(x) for (batch,) in loader for x in batch)
torch.manual_seed(3)
layer = torch.nn.Linear(64, 64)
loss = layer(torch.randn(256, 64)).square().mean()
loss.backward()
torch.set_num_threads(2)
json.dump(
    {
        "seen": len(seen), "loss": float(loss), "grad": float(layer.weight.grad.sum()),
        "cuda": torch.cuda.is_initialized(), "files": len(os.listdir("/proc/self/fd")),
        "frozen": sys.flags.optimize, "numpy": float(np.random.rand()),
    },
    open("metrics.json", "w"),
)
"""
SEED = """
import json, torch
drawn = {"seed": str(torch.initial_seed()), "first": float(torch.rand(1))}
json.dump(drawn, open("metrics.json", "w"))
"""


def trials(tmp_path: Path, code: str, *, warm: bool) -> list[dict[str, object]]:
    source = tmp_path / "source"
    source.mkdir(exist_ok=True)
    (source / "train.py").write_text(code)
    work = flash.CommandWorkload(
        "python train.py {n}", source=source, task_params=[{"n": n} for n in range(2)], warm=warm
    )
    run = flash.submit(work, tmp_path / f"out-{warm}", watch=False)
    assert run.state is flash.RunState.SUCCEEDED, run.logs()
    kept = ("task", "state", "params", "resumed_from", "attempts")
    return [{k: v for k, v in trial.items() if k not in kept} for trial in run.trials]


def test_a_fork_computes_what_a_fresh_process_computes(tmp_path: Path) -> None:
    forked, fresh = (trials(tmp_path, SCRIPT, warm=warm) for warm in (True, False))
    drawn = [trial.pop("numpy") for trial in (*forked, *fresh)]
    assert len(set(drawn)) == 4, "NumPy's global stream is seeded anew in each"
    assert forked == fresh, json.dumps([forked, fresh])


def test_an_unseeded_fork_draws_its_own_numbers_as_a_fresh_process_does(tmp_path: Path) -> None:
    drawn = [str(trial) for warm in (True, False) for trial in trials(tmp_path, SEED, warm=warm)]
    assert len(set(drawn)) == 4
