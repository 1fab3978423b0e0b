"""`stall.py MIB ROUNDS DIRECTORY`: one state saved in every way, in turn; prints the samples.

Every arm syncs what it wrote, which is then removed, so that none pays for another's writes.
"""

import hashlib
import json
import os
import shutil
import sys
import time
import warnings
from collections.abc import Callable
from pathlib import Path

import torch
import torch.distributed.checkpoint as dcp

import flashruntime.torch as ft

MIB = 1024 * 1024
PIECE = 4 * MIB
POLL_S = 0.0002
WAIT_S = 300.0


class State(torch.nn.Module):  # type: ignore[misc]
    """Parameters of 4 MiB each, so many MiB in all."""

    def __init__(self, mib: int) -> None:
        super().__init__()
        count = max(1, mib * MIB // PIECE)
        pieces = [torch.randn(PIECE // 4) for _ in range(count)]
        self.pieces = torch.nn.ParameterList([torch.nn.Parameter(piece) for piece in pieces])


def seconds(action: Callable[[], object]) -> float:
    begun = time.monotonic()
    action()
    return time.monotonic() - begun


class Arms:
    """Every way to save the state; each returns seconds by name."""

    def __init__(self, model: State, place: Path) -> None:
        self.model, self.place = model, place
        self.state = model.state_dict()
        self.tree = Path(os.environ["FLASHML_CKPT_DIR"])
        self.step = 0
        self.warm = [torch.empty_like(each) for each in self.state.values()]
        for buffer in self.warm:
            buffer.zero_()

    def flash(self) -> dict[str, float]:
        self.step += 1
        manifest = self.tree / f"step-{self.step:06d}" / "manifest.json"
        begun = time.monotonic()
        ft.checkpoint(self.model, step=self.step)
        stall = time.monotonic() - begun
        while not manifest.exists():
            if time.monotonic() - begun > WAIT_S:
                raise SystemExit(f"{manifest} did not appear within {WAIT_S} s")
            time.sleep(POLL_S)
        return {"stall": stall, "durable": time.monotonic() - begun}

    def torch_save(self) -> dict[str, float]:
        path = self.place / "torch.pt"
        begun = time.monotonic()
        torch.save(self.state, path)
        stall = time.monotonic() - begun
        with path.open("rb") as file:
            os.fsync(file.fileno())
        return {"stall": stall, "durable": time.monotonic() - begun}

    def dcp_save(self) -> dict[str, float]:
        path = self.place / "dcp"
        took = seconds(lambda: dcp.save({"model": self.state}, checkpoint_id=path))
        return {"stall": took, "durable": took}

    def dcp_async(self) -> dict[str, float]:
        return self._async(lambda: self.state)

    def dcp_async_copied(self) -> dict[str, float]:
        return self._async(lambda: {key: each.clone() for key, each in self.state.items()})

    def _async(self, state: Callable[[], dict[str, torch.Tensor]]) -> dict[str, float]:
        begun = time.monotonic()
        future = dcp.async_save({"model": state()}, checkpoint_id=self.place / "dcp-async")
        stall = time.monotonic() - begun
        future.result()
        return {"stall": stall, "durable": time.monotonic() - begun}

    def memcpy(self) -> dict[str, float]:
        def copy() -> None:
            for target, source in zip(self.warm, self.state.values(), strict=True):
                target.copy_(source)

        return {"stall": seconds(copy)}

    def raw_write(self) -> dict[str, float]:
        """Write the same bytes to new files of 64 MiB and sync each."""
        pieces = [memoryview(each.numpy()).cast("B") for each in self.state.values()]
        begun = time.monotonic()
        for start in range(0, len(pieces), 16):
            file = os.open(self.place / f"raw-{start}", os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
            for piece in pieces[start : start + 16]:
                os.write(file, piece)
            os.fsync(file)
            os.close(file)
        return {"durable": time.monotonic() - begun}

    def sha256(self) -> dict[str, float]:
        def digest() -> None:
            for each in self.state.values():
                hashlib.sha256(memoryview(each.numpy()).cast("B"))

        return {"durable": seconds(digest)}


def clear(place: Path) -> None:
    for path in place.iterdir():
        if path.is_dir():
            shutil.rmtree(path)
        else:
            path.unlink()


def main() -> None:
    mib, rounds, place = int(sys.argv[1]), int(sys.argv[2]), Path(sys.argv[3])
    warnings.simplefilter("ignore")
    model, _, _ = ft.prepare(State(mib))
    arms = Arms(model, place)
    names = ["flash", "torch_save", "dcp_save", "dcp_async", "dcp_async_copied", "memcpy",
             "raw_write", "sha256"]  # fmt: skip
    taken: dict[str, list[float]] = {}
    for number in range(-1, rounds):
        for name in names if number % 2 else names[::-1]:
            measured = getattr(arms, name)()
            clear(place)
            for part, value in measured.items():
                if number >= 0:
                    taken.setdefault(f"{name}.{part}", []).append(value)
    print(json.dumps(taken) + "\n", end="", flush=True)


main()
