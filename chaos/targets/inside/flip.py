"""Flip one bit in a part of the newest committed checkpoint, through the volume.

Request: {"root": path, "part": int, "offset": float, "bit": int}; `part` is taken modulo the
number of parts, `offset` is a fraction of the part's size. Flipping the same bit again restores it.
Answer: {"at_ns", "step", "manifest_id", "attempt_id", "path",
"before", "after"}.
"""

import hashlib
import json
import os
import re
import time
from pathlib import Path
from typing import Any

STEP = re.compile(r"step-([0-9]{6,})")


def newest(root: Path) -> tuple[int, Path]:
    """Return the highest step that has a manifest; raise LookupError if there is none."""
    found = [
        (int(match[1]), entry)
        for entry in root.iterdir()
        if (match := STEP.fullmatch(entry.name)) and (entry / "manifest.json").is_file()
    ]
    if not found:
        raise LookupError(f"no committed checkpoint under {root}")
    return max(found)


def digest(path: Path) -> str:
    """Return the sha256 of a file."""
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def flip(path: Path, offset_bytes: int, bit: int) -> None:
    """Flip the bit in place, durably."""
    with path.open("r+b") as stream:
        stream.seek(offset_bytes)
        value = stream.read(1)[0]
        stream.seek(offset_bytes)
        stream.write(bytes([value ^ (1 << bit)]))
        stream.flush()
        os.fsync(stream.fileno())


def answer(request: dict[str, Any]) -> dict[str, Any]:
    """Flip, and tell what was flipped; the time is taken when the file is durable."""
    step, directory = newest(Path(request["root"]))
    manifest = json.loads((directory / "manifest.json").read_bytes())
    part = manifest["parts"][request["part"] % len(manifest["parts"])]
    path = directory / part["key"]
    offset_bytes = min(int(request["offset"] * part["size_bytes"]), part["size_bytes"] - 1)
    before = digest(path)
    flip(path, offset_bytes, request["bit"])
    flipped_ns = time.monotonic_ns()
    return {
        "at_ns": flipped_ns,
        "step": step,
        "manifest_id": manifest["manifest_id"],
        "attempt_id": manifest["attempt_id"],
        "path": f"{directory.name}/{part['key']}",
        "before": before,
        "after": digest(path),
    }
