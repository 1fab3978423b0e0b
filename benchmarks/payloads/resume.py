"""`resume.py MIB CHECKPOINTS ROUNDS DIRECTORY`: resumes from a tree again and again.

Beside it, in turn: reading the same bytes without checking them, and SHA-256 of them in memory, on
one core and on all. `read` is how often the bytes of one checkpoint were read (from /proc/self/io).
"""

import hashlib
import json
import os
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from flashruntime.attempt import Attempt, Settings
from flashruntime.checkpoint import Claim

MIB = 1024 * 1024
PART = 64 * MIB
PLACE = Path(sys.argv[4])
CORES = len(os.sched_getaffinity(0))


def attempt(epoch: int) -> Attempt:
    claim = Claim(attempt_id=f"attempt-{epoch}", job_id="bench", epoch=epoch)
    return Attempt(Settings(ckpt_dir=PLACE, output_dir=PLACE.parent, claim=claim))


def build(mib: int, checkpoints: int) -> list[Path]:
    """Write the tree and return the parts of its newest checkpoint."""
    first = attempt(0)
    first.resume()
    size = min(PART, mib * MIB)
    parts = {f"part-{index}": os.urandom(size) for index in range(mib * MIB // size)}
    for step in range(1, checkpoints + 1):
        first.save(step, parts)
    return [PLACE / f"step-{checkpoints:06d}" / name for name in parts]


def bytes_read() -> int:
    lines = Path("/proc/self/io").read_text(encoding="ascii").splitlines()
    return int(lines[0].split()[1])


def resumed(epoch: int, newest: int, size: int) -> dict[str, float]:
    before, begun = bytes_read(), time.monotonic()
    found = attempt(epoch).resume()
    took = time.monotonic() - begun
    if found is None or found.step != newest:
        raise SystemExit(f"resumed from {found and found.step} instead of {newest}")
    return {"flash": took, "flash.read": (bytes_read() - before) / size}


def read_alone(paths: list[Path]) -> float:
    begun = time.monotonic()
    for path in paths:
        path.read_bytes()
    return time.monotonic() - begun


def hashed(pieces: list[bytes], threads: int) -> float:
    begun = time.monotonic()
    with ThreadPoolExecutor(threads) as pool:
        list(pool.map(lambda piece: hashlib.sha256(piece).digest(), pieces))
    return time.monotonic() - begun


def main() -> None:
    mib, checkpoints, rounds = (int(word) for word in sys.argv[1:4])
    paths = build(mib, checkpoints)
    pieces = [path.read_bytes() for path in paths]
    taken: dict[str, list[float]] = {}
    for number in range(-1, rounds):
        measured = {
            **resumed(number + 2, checkpoints, mib * MIB),
            "read alone": read_alone(paths),
            "sha256 on one core": hashed(pieces, 1),
            "sha256 on all cores": hashed(pieces, CORES),
        }
        for name, value in measured.items():
            if number >= 0:
                taken.setdefault(name, []).append(value)
    print(json.dumps(taken) + "\n", end="", flush=True)


main()
