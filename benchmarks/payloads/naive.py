"""`naive.py LIB WAY STEPS MIB`: saves at each step into one file, and says so before each save.

LIB is torch or pickle. WAY `place` overwrites latest.pt; `rename` writes beside it and renames.
`naive.py load LIB FILE...` prints, as a JSON list, how each file fails to load ("" where it loads).
"""

import json
import os
import pickle
import random
import sys
from pathlib import Path
from typing import Any

if "torch" in sys.argv:
    import torch

LATEST, SCRATCH = Path("latest.pt"), Path("latest.pt.tmp")


def write(lib: str, state: Any, path: Path) -> None:
    if lib == "torch":
        torch.save(state, path)
    else:
        with path.open("wb") as file:
            pickle.dump(state, file)


def build(lib: str, mib: int, step: int) -> Any:
    data = random.Random(step).randbytes(mib << 20)
    if lib == "torch":
        return {"step": step, "weights": torch.frombuffer(bytearray(data), dtype=torch.uint8)}
    return {"step": step, "weights": data}


def train(lib: str, way: str, steps: int, mib: int) -> None:
    for step in range(1, steps + 1):
        state = build(lib, mib, step)
        print(f"saving {step}", flush=True)
        if way == "rename":
            write(lib, state, SCRATCH)
            os.replace(SCRATCH, LATEST)  # noqa: PTH105 (said as one system call)
        else:
            write(lib, state, LATEST)
        print(f"saved {step} {LATEST.stat().st_size}", flush=True)


def failure(lib: str, path: str) -> str:
    try:
        if lib == "torch":
            torch.load(path, weights_only=True)
        else:
            with open(path, "rb") as file:  # noqa: PTH123 (as its users write it)
                pickle.load(file)  # noqa: S301 (its own file)
    except Exception as error:  # noqa: BLE001 (which class it is, is what is measured)
        return type(error).__name__
    return ""


if sys.argv[1] == "load":
    print(json.dumps([failure(sys.argv[2], path) for path in sys.argv[3:]]))
else:
    train(sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4]))
