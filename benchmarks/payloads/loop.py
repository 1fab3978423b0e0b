"""`loop.py MODEL ROUNDS STEPS EVERY DIRECTORY`: the same training steps with each way to save.

EVERY 0: so many steps as writing the state twice takes, and STEPS are at least two intervals.
Prints the seconds of the training loop of each segment; what is still being written when a
segment ends is waited for, and told apart as `settled`.
"""

import json
import os
import shutil
import sys
import time
import warnings
from collections.abc import Callable
from concurrent.futures import Future
from pathlib import Path

import torch
import torch.distributed.checkpoint as dcp
from models import build, train_step

import flashruntime.torch as ft

POLL_S = 0.0005
WRITES = 2.0
TREE = Path(os.environ["FLASHML_CKPT_DIR"])
PLACE = Path(sys.argv[5])

model = build(sys.argv[1])
optimizer = torch.optim.AdamW(model.parameters())
model, optimizer, _ = ft.prepare(model, optimizer)
pending: list[Future[object]] = []
last_saved = 0
step = 0


def state() -> dict[str, object]:
    return {"model": model.state_dict(), "optimizer": optimizer.state_dict()}


def save_torch(_step: int, due: bool) -> None:
    if due:
        path = PLACE / "torch.pt"
        torch.save(state(), path)
        with path.open("rb") as file:
            os.fsync(file.fileno())


def save_dcp(_step: int, due: bool) -> None:
    if due:
        wait_dcp()
        copied = {key: each.clone() for key, each in model.state_dict().items()}
        for index, slots in optimizer.state_dict()["state"].items():
            copied |= {f"{index}.{name}": slot.clone() for name, slot in slots.items()}
        pending.append(dcp.async_save(copied, checkpoint_id=PLACE / f"dcp-{time.monotonic_ns()}"))


def wait_dcp() -> None:
    while pending:
        pending.pop().result()


def save_flash(at: int, due: bool) -> None:
    global last_saved  # noqa: PLW0603 (a script)
    ft.checkpoint(model, optimizer, step=at, every=None if due else 0)
    last_saved = at if due else last_saved


def wait_flash() -> None:
    while last_saved and not (TREE / f"step-{last_saved:06d}" / "manifest.json").exists():
        time.sleep(POLL_S)


def nothing(_step: int = 0, _due: bool = False) -> None:
    return


ARMS: dict[str, tuple[Callable[[int, bool], None], Callable[[], None]]] = {
    "vanilla": (nothing, nothing),
    "flash_none": (lambda at, _due: save_flash(at, False), nothing),
    "flash": (save_flash, wait_flash),
    "torch_save": (save_torch, nothing),
    "dcp_async": (save_dcp, wait_dcp),
}


def segment(arm: str, steps: int, every: int) -> tuple[float, float]:
    """Return the seconds of the loop, and those until nothing was in flight any more."""
    global step  # noqa: PLW0603 (a script)
    save, wait = ARMS[arm]
    begun = time.monotonic()
    for number in range(1, steps + 1):
        step += 1
        train_step(model, optimizer)
        save(step, number % every == 0)
    loop_s = time.monotonic() - begun
    wait()
    return loop_s, time.monotonic() - begun


def clear() -> None:
    for path in PLACE.iterdir():
        if path.is_dir():
            shutil.rmtree(path)
        else:
            path.unlink()


def main() -> None:
    warnings.simplefilter("ignore")
    rounds, steps, every = (int(word) for word in sys.argv[2:5])
    step_s = min(segment("vanilla", 3, 3)[0] / 3 for _ in range(2))
    if every == 0:
        begun = time.monotonic()
        save_torch(0, True)
        every = max(1, round(WRITES * (time.monotonic() - begun) / step_s))
        steps = max(steps, 2 * every)
    taken: dict[str, list[float]] = {}
    for number in range(-1, rounds):
        for arm in ARMS if number % 2 else [*ARMS][::-1]:
            loop_s, settled_s = segment(arm, steps, every)
            clear()
            if number >= 0:
                taken.setdefault(arm, []).append(loop_s)
                taken.setdefault(f"{arm}.settled", []).append(settled_s)
    size = sum(each.numel() for each in model.parameters())
    about = {"steps": steps, "every": every, "parameters": size, "step_s": step_s}
    print(json.dumps({**taken, "about": about}) + "\n", end="", flush=True)


main()
