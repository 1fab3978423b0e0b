"""`snapshot_check.py save|load DIRECTORY`: does a save keep what the state was when it was asked?

`save` asks for a checkpoint and overwrites the parameters at once, for flashruntime and for DCP's
async_save; `load` reads flashruntime's back in a new process. Prints what kept the old values.
"""

import json
import sys
from pathlib import Path

import torch
import torch.distributed.checkpoint as dcp

import flashruntime.torch as ft

PIECES, PIECE = 32, 1024 * 1024


def state() -> torch.nn.ParameterList:
    torch.manual_seed(0)
    return torch.nn.ParameterList([torch.nn.Parameter(torch.randn(PIECE)) for _ in range(PIECES)])


def overwrite(model: torch.nn.ParameterList) -> None:
    with torch.no_grad():
        for each in model:
            each.fill_(7.0)


def kept(model: torch.nn.ParameterList) -> bool:
    return all(torch.equal(a, b) for a, b in zip(model, state(), strict=True))


def save(place: Path) -> dict[str, bool]:
    other = state()
    future = dcp.async_save({"model": other.state_dict()}, checkpoint_id=place / "dcp")
    overwrite(other)
    future.result()
    read = state()
    overwrite(read)
    target = {"model": read.state_dict()}
    dcp.load(target, checkpoint_id=place / "dcp")
    model, _, _ = ft.prepare(state())
    ft.checkpoint(model, step=1)
    overwrite(model)
    return {"dcp_async": kept(read)}


def load() -> dict[str, bool]:
    model = state()
    overwrite(model)
    model, _, _ = ft.prepare(model)
    return {"flash": ft.start_step() == 1 and kept(model)}


found = save(Path(sys.argv[2])) if sys.argv[1] == "save" else load()
print(json.dumps(found) + "\n", end="", flush=True)
