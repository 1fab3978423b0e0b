"""Inside the runtime image: saves a checkpoint to be recorded, and judges what a power loss left.

`record ROOT`: save an older step, wait for SIGUSR1, save a newer one, wait again.
`judge BUNDLE SCRATCH`: build each state of a bundle and resume from it.
"""

import hashlib
import json
import sys
from pathlib import Path

from chaos.payloads.power_stage import Item, Outcome, answered, recorded, run
from flashruntime.attempt import Attempt, Settings
from flashruntime.checkpoint import Claim
from flashruntime.errors import FlashError

OLDER, NEWER, LATER = 10, 20, 30
PART_BYTES = {"model-00000": 96 * 1024, "model-00001": 96 * 1024, "optimizer": 50_001, "rng": 700}


def parts(step: int) -> dict[str, bytes]:
    """Return the state at a step: the same bytes whoever asks."""
    return {name: hashlib.shake_128(f"{step} {name}".encode()).digest(size) for name, size in
            PART_BYTES.items()}  # fmt: skip


def attempt(root: Path, number: int) -> Attempt:
    """Return the attempt of this number on the tree."""
    claim = Claim(f"attempt-{number}", "job", number)
    return Attempt(Settings(ckpt_dir=root, output_dir=root.parent, claim=claim))


def record(root: Path) -> None:
    """Save an older step, and a newer one to be recorded."""
    mine = attempt(root, 1)
    mine.resume()
    mine.save(OLDER, parts(OLDER))
    with recorded():
        mine.save(NEWER, parts(NEWER))
        answered(name_of(NEWER))


def name_of(step: int) -> str:
    """Return the item that a step is."""
    return f"step-{step:06d}"


def published(root: Path, step: int) -> Item:
    """Return what lies at the name of a step, without the runtime's help."""
    folder = root / name_of(step)
    if not folder.exists():
        return Item.ABSENT
    try:
        manifest = json.loads((folder / "manifest.json").read_bytes())
        named = {part["key"]: part["sha256"] for part in manifest["parts"]}
        found = {key: (folder / key).read_bytes() for key in named}
    except (OSError, ValueError, KeyError, TypeError):
        return Item.TORN
    hashed = {key: hashlib.sha256(data).hexdigest() for key, data in found.items()}
    return Item.WHOLE if named == hashed and found == parts(step) else Item.TORN


def look(root: Path) -> Outcome:
    """Resume from the tree, check the bytes, and save once more."""
    items = {name_of(step): published(root, step) for step in (OLDER, NEWER)}
    newest = max((step for step in (OLDER, NEWER) if items[name_of(step)] is Item.WHOLE), default=0)
    try:
        mine = attempt(root, 2)
        found = mine.resume()
        step = found.step if found else 0
        if found is not None and found.parts != parts(step):
            return Outcome(False, items, f"resumed from step {step} with other bytes")
        if step != newest:
            return Outcome(False, items, f"resumed from step {step}, the newest is {newest}")
        mine.save(LATER, parts(LATER))
    except FlashError as error:
        return Outcome(False, items, f"{type(error).__name__}: {error}")
    went_on = published(root, LATER) is Item.WHOLE
    return Outcome(went_on, items, "" if went_on else "the next save left no whole step")


if __name__ == "__main__":
    sys.exit(run(record, look))
