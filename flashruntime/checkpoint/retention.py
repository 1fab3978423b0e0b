"""Removing old checkpoints: oldest first, of one's own chain only, and only while its head."""

import operator

from flashruntime.checkpoint import displace, files
from flashruntime.checkpoint.lineage import Hold
from flashruntime.checkpoint.manifest import step_name
from flashruntime.checkpoint.store import REJECTED, RESTORED, Admits, load_manifest, steps
from flashruntime.errors import InvalidInput
from flashruntime.protocol.checkpoints import Manifest


def check_keep(keep: object) -> int | None:
    """Return how many checkpoints to keep; None keeps all, and there is no other way to say so."""
    if keep is None:
        return None
    try:
        number = 0 if isinstance(keep, bool) else operator.index(keep)  # type: ignore[arg-type]
    except TypeError:
        number = 0
    if number < 1:
        raise InvalidInput(f"keep must be an integer of at least 1, or None for all, not {keep!r}")
    return number


def retain(hold: Hold, admits: Admits, committed: int, keep: int) -> list[int]:
    """Keep the verified step `committed` and the `keep` - 1 before it; return the steps removed.

    Steps beyond the committed one are left alone: what has not been verified never counts.
    """
    older = [step for step in steps(hold.root) if step < committed and _ours(hold, admits, step)]
    surplus = older[keep - 1 :]
    for step in reversed(surplus):
        displace.discard(hold, step_name(step))
        for kind in (REJECTED, RESTORED):
            for note in (hold.root / kind).glob(f"{step_name(step)}.*.json"):
                files.remove(note)
    return surplus


def _ours(hold: Hold, admits: Admits, step: int) -> bool:
    try:
        manifest = load_manifest(hold.root, step)
    except FileNotFoundError:
        return False
    return isinstance(manifest, Manifest) and admits(manifest)
