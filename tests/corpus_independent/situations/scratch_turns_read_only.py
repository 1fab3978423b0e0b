"""Two checkpoints are written; at the third the scratch file system has become read-only."""

import errno
import os
import tempfile
from pathlib import Path


def save(folder: Path, step: int) -> None:
    path = folder / f"checkpoint-{step}.pt"
    if step == 300:
        raise OSError(errno.EROFS, os.strerror(errno.EROFS), str(path))
    path.write_bytes(b"\0" * 4096)
    print(f"saved {path} ({path.stat().st_size} bytes)", flush=True)


with tempfile.TemporaryDirectory(prefix="scratch-run7-") as name:
    for step in range(50, 400, 50):
        print(f"step {step} loss {2.0 - step / 1000:.3f}", flush=True)
        if step % 100 == 0:
            save(Path(name), step)
