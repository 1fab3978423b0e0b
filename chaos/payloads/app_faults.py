"""A trial that does harm to itself or to its worker at one step of its first attempt.

What it is about to do, and how much of it was done, it writes down on the checkpoint volume, beside
the trees: a channel that lives on when the process does not.
"""

import argparse
import ctypes
import importlib
import json
import math
import os
import signal
import sys
import threading
import time
from pathlib import Path
from typing import Any

import trial  # type: ignore[import-not-found]  # beside this script

from flashruntime.attempt import Attempt

EXIT_CODE = 3
SELF_KILLED = 137
CHILDREN = 200
FLOOD_BYTES = 32 << 20
BLOCK_BYTES = 1 << 16
MIB = 1 << 20


class Notes:
    """What this attempt writes down of itself: one file, replaced as a whole and durable."""

    def __init__(self, mode: str) -> None:
        root = Path(os.environ["FLASHML_CKPT_DIR"]).parents[1] / ".evidence"
        root.mkdir(exist_ok=True)
        self._path = root / f"{os.environ['FLASHML_ATTEMPT_ID']}.json"
        self._known: dict[str, Any] = {"mode": mode, "began_ns": time.monotonic_ns()}

    def write(self, **more: Any) -> None:
        """Add to what is known."""
        self._known.update(more)
        beside = self._path.with_suffix(".new")
        with beside.open("w", encoding="utf-8") as stream:
            json.dump(self._known, stream)
            stream.flush()
            os.fsync(stream.fileno())
        beside.replace(self._path)


def end(mode: str, loss: float) -> None:
    """End this process, or never let it end, as `mode` says."""
    if mode == "exception":
        raise KeyError("no such column: label")
    if mode == "nan_loss":
        loss = math.nan * loss
        if not math.isfinite(loss):
            raise FloatingPointError(f"loss is {loss}")
    if mode == "system_exit":
        raise SystemExit(EXIT_CODE)
    if mode == "segfault":
        ctypes.string_at(0)
    if mode == "self_exit_137":
        os._exit(SELF_KILLED)
    if mode == "hang":
        threading.Event().wait()


def hold_gil(seconds: float) -> float:
    """Sleep in C, in one call, while no other thread of this process can run; return how long."""
    began_s = time.monotonic()
    ctypes.PyDLL(None).sleep(int(seconds))
    return time.monotonic() - began_s


def children(count: int) -> int:
    """Fork so many children that do nothing and end by themselves never; return how many."""
    made = 0
    for _ in range(count):
        try:
            pid = os.fork()
        except BlockingIOError:
            break
        if pid == 0:
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
            while True:
                signal.pause()
        made += 1
    return made


def flood(size_bytes: int) -> int:
    """Write so much to standard output, and no line's end; return how much."""
    block = b"." * BLOCK_BYTES
    sys.stdout.flush()
    written = 0
    while written < size_bytes:
        written += os.write(1, block)
    return written


def allocate(size_mib: int) -> float:
    """Take so much memory and touch each page of it; return how much, where that is survived."""
    held = [bytearray(os.urandom(1)) * MIB for _ in range(size_mib)]
    return sum(map(len, held)) / MIB


def strain(mode: str, amount: float) -> float | None:
    """Do what does not end the process; return how much was done, None for the other modes."""
    if mode == "hold_gil":
        return hold_gil(amount)
    if mode == "children":
        return children(int(amount) or CHILDREN)
    if mode == "flood":
        return flood(int(amount) or FLOOD_BYTES)
    if mode == "allocate":
        return allocate(int(amount))
    return None


def parse() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description="Fit a line, and do harm.")
    parser.add_argument("--mode", required=True)
    parser.add_argument("--at", type=int, required=True, help="step at which to do it")
    parser.add_argument("--amount", type=float, default=0.0)
    parser.add_argument("--steps", type=int, default=40)
    parser.add_argument("--every", type=int, default=5)
    parser.add_argument("--samples", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--ballast-mib", type=int, default=0)
    return parser.parse_args()


def harm(args: argparse.Namespace, loss: float) -> None:
    """Write down what comes, do it, and write down how much was done."""
    notes = Notes(args.mode)
    notes.write(step=args.at, attempt=os.environ["FLASHML_ATTEMPT_ID"])
    done = strain(args.mode, args.amount)
    if done is None:
        end(args.mode, loss)
    else:
        notes.write(amount=done, ended_ns=time.monotonic_ns())


def main() -> None:
    """Fit, do harm, and write metrics.json."""
    args = parse()
    is_first = os.environ.get("FLASHML_RESTART_COUNT", "0") == "0"
    if args.mode == "import_error":
        Notes(args.mode).write()
        importlib.import_module("a_module_that_nobody_installed")
    attempt, line = Attempt.from_env(), trial.Line(args.seed * 1000)
    start = trial.resume(args, attempt, line)
    loss = 0.0
    for step in range(start + 1, args.steps + 1):
        loss = line.step(args.samples)
        if step % args.every == 0:
            attempt.save(step, {"line.json": line.dump()})
        attempt.report(step)
        if step == args.at and is_first:
            harm(args, loss)
    attempt.log(
        {
            "loss": loss,
            "steps": args.steps,
            "weights_sha256": line.sha256(),
            "sample_chain": line.chain,
            "samples_seen": line.seen,
            "resumed_from": start or None,
            "executed_steps_this_attempt": args.steps - start,
        }
    )


if __name__ == "__main__":
    main()
