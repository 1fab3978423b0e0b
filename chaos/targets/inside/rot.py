"""Damage a content-addressed blob, keep what it was, and hand that out again.

Request: {"root", "mode", "digests", "choice"}: the largest of these blobs is hit; `swap` and
`roll_back` (an older version in its place) take another one of them. Answer: {"at_ns", "reason",
"files": [{"digest", "path", "before", "after"}]}. Request: {"kept": digest}. Answer: {"data"}:
base64, or null where none was kept.
"""

import base64
import shutil
import time
from pathlib import Path
from typing import Any

from chaos.targets.inside.bytework import MODES, Spot, put, read_by_another

KEPT = Path("/tmp/kept")  # noqa: S108 (of a container that holds nothing else)
TWO_FILES = {"swap", "roll_back"}
FOREIGN = "foreign_file"
BLOB_MODES = {*MODES, FOREIGN} - {"garbage_manifest"}


def blob(root: Path, digest: str) -> Path:
    """Return where a blob lies."""
    return root / "sha256" / digest[:2] / digest


def keep(path: Path) -> None:
    """Copy a blob aside, once."""
    KEPT.mkdir(exist_ok=True)
    if not (KEPT / path.name).exists():
        shutil.copyfile(path, KEPT / path.name)


def foreign(root: Path, near: str, spot: Spot) -> Path:
    """Return where a file would lie whose name is no digest of its bytes."""
    return root / "sha256" / near[:2] / (near[:2] + spot.noise.hex()[2:])


def answer(request: dict[str, Any]) -> dict[str, Any]:
    """Hit a blob, or return what was kept."""
    if "kept" in request:
        path = KEPT / request["kept"]
        data = base64.b64encode(path.read_bytes()).decode() if path.is_file() else None
        return {"data": data}
    return hit(Path(request["root"]), request["mode"], request["digests"], request["choice"])


def hit(root: Path, mode: str, digests: list[str], choice: int) -> dict[str, Any]:
    """Hit the largest blob, and the next one where the mode needs two."""
    spot = Spot.of(choice)
    found = [path for digest in dict.fromkeys(digests) if (path := blob(root, digest)).is_file()]
    ordered = sorted(found, key=lambda path: (-path.stat().st_size, path.name))
    needed = 2 if mode in TWO_FILES else 1
    if len(ordered) < needed or mode not in BLOB_MODES:
        reason = f"{len(ordered)} blobs, {mode} needs {needed}, or is nothing for blobs"
        return {"at_ns": time.monotonic_ns(), "reason": reason, "files": []}
    chosen = ordered[:needed]
    if mode == FOREIGN:
        chosen = [foreign(root, ordered[0].name, spot)]
    before = [read_by_another(path) for path in chosen]
    for path, was in zip(chosen, before, strict=True):
        if was is not None:
            keep(path)
    if mode == FOREIGN:
        put(chosen[0], spot.noise)
    else:
        MODES[mode](chosen[0], chosen[-1], spot)
    struck_ns = time.monotonic_ns()
    files = [
        {
            "digest": path.name,
            "path": str(path.relative_to(root)),
            "before": was,
            "after": read_by_another(path),
        }
        for path, was in zip(chosen, before, strict=True)
    ]
    changed = [file for file in files if file["before"] != file["after"]]
    return {"at_ns": struck_ns, "reason": None, "files": changed or files}
