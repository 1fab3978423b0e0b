"""Moving a step directory out of the way so that no process, however late, harms a successor.

A rename decides each stage: `NAME` -> `.displaced/NAME.ID.pending` -> its final place. Between the
two the mover looks at the lineage again; what it must not have moved goes back. A mover that dies
in between leaves a `.pending` that the next attempt of the chain puts back.
"""

import os
import re
import uuid
from pathlib import Path

from flashruntime.checkpoint import files
from flashruntime.checkpoint.lineage import Hold
from flashruntime.checkpoint.manifest import MANIFEST_NAME, MAX_MANIFEST_BYTES, decode, seal
from flashruntime.checkpoint.store import Admits
from flashruntime.errors import CheckpointError, Superseded

DISPLACED = ".displaced"
QUARANTINE = ".quarantine"
_PENDING = re.compile(r"(step-[0-9]{6,16})\.[0-9a-f]{12}\.pending")


def quarantine(hold: Hold, name: str, reason: str) -> None:
    """Move `name` to the quarantine and note the reason beside it."""
    pending = _take(hold, name)
    if pending is None:
        return
    final = hold.root / QUARANTINE / pending.stem
    files.make_directory(final.parent)
    if _settle(pending, final):
        note = {"name": name, "reason": reason, "moved_by": hold.entry.attempt_id}
        files.create_exclusively(
            final.with_name(f"{final.name}.json"), seal(note), f".{final.name}.tmp"
        )


def discard(hold: Hold, name: str) -> None:
    """Remove the directory `name` for good; a power cut may bring it back, which harms nobody."""
    pending = _take(hold, name, durably=False)
    if pending is not None:
        doomed = pending.with_suffix(".doomed")
        if _settle(pending, doomed, durably=False):
            files.remove(doomed)


def put_back_pending(root: Path, admits: Admits) -> None:
    """Undo moves whose movers died, where the moved checkpoint belongs to the chain."""
    try:
        found = [path for path in (root / DISPLACED).iterdir() if _PENDING.fullmatch(path.name)]
    except FileNotFoundError:
        return
    for path in found:
        try:
            manifest = decode(files.read_small(path / MANIFEST_NAME, MAX_MANIFEST_BYTES))
        except CheckpointError:
            continue
        if admits(manifest):
            _put_back(root, path)


def sweep_doomed(root: Path) -> None:
    """Finish removals that were decided and then interrupted."""
    for path in (root / DISPLACED).glob("*.doomed"):
        files.remove(path)


def _take(hold: Hold, name: str, *, durably: bool = True) -> Path | None:
    """Move `name` aside and return where it is now, or None where it was gone already."""
    hold.check()
    pending = hold.root / DISPLACED / f"{name}.{uuid.uuid4().hex[:12]}.pending"
    files.make_directory(pending.parent)
    try:
        os.rename(hold.root / name, pending)  # noqa: PTH104 (one system call, said as such)
    except FileNotFoundError:
        return None
    try:
        hold.check()
    except Superseded:
        _put_back(hold.root, pending)
        raise
    if durably:
        files.sync_directory(hold.root)
    return pending


def _settle(pending: Path, final: Path, *, durably: bool = True) -> bool:
    """Make the move final, unless a successor has put the directory back."""
    try:
        os.rename(pending, final)  # noqa: PTH104 (one system call, said as such)
    except FileNotFoundError:
        return False
    if durably:
        files.sync_directory(final.parent)
    return True


def _put_back(root: Path, pending: Path) -> None:
    """Return the directory to its place unless that is taken again."""
    match = _PENDING.fullmatch(pending.name)
    name = match[1] if match else pending.name
    try:
        os.rename(pending, root / name)  # noqa: PTH104 (one system call, said as such)
    except OSError:
        return
    files.sync_directory(root)
