"""Flip one bit in a part of the newest committed checkpoint, through the volume.

Argument: {"root": path, "part": int, "offset": float, "bit": int}; `part` is taken modulo the
number of parts, `offset` is a fraction of the part's size. Flipping the same bit again restores it.
Answer: {"t_ns", "step", "path", "offset_bytes", "before", "after"}.
"""

import hashlib
import json
import os
import re
import sys
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


def flip(path: Path, offset_bytes: int, bit: int) -> tuple[str, str]:
    """Flip the bit in place, durably; return the digests before and after, both read back."""
    before = hashlib.sha256(path.read_bytes()).hexdigest()
    with path.open("r+b") as stream:
        stream.seek(offset_bytes)
        value = stream.read(1)[0]
        stream.seek(offset_bytes)
        stream.write(bytes([value ^ (1 << bit)]))
        stream.flush()
        os.fsync(stream.fileno())
    return before, hashlib.sha256(path.read_bytes()).hexdigest()


def main() -> None:
    """Print one line."""
    request: dict[str, Any] = json.loads(sys.argv[1])
    step, directory = newest(Path(request["root"]))
    manifest = json.loads((directory / "manifest.json").read_bytes())
    part = manifest["parts"][request["part"] % len(manifest["parts"])]
    path = directory / part["key"]
    offset_bytes = min(int(request["offset"] * part["size_bytes"]), part["size_bytes"] - 1)
    before, after = flip(path, offset_bytes, request["bit"])
    answer = {
        "t_ns": time.monotonic_ns(),
        "step": step,
        "path": f"{directory.name}/{part['key']}",
        "offset_bytes": offset_bytes,
        "before": before,
        "after": after,
    }
    sys.stdout.write(json.dumps(answer) + "\n")


if __name__ == "__main__":
    main()
