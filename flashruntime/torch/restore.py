"""Which checkpoint to go on from: the newest that every rank has read and verified for itself."""

from dataclasses import dataclass
from functools import partial
from typing import Any

from flashruntime.attempt import Attempt
from flashruntime.checkpoint import Resume, lineage, store
from flashruntime.errors import CheckpointError
from flashruntime.torch.ranks import Ranks
from flashruntime.torch.shared import state_of


@dataclass(frozen=True, slots=True)
class Restored:
    """A checkpoint that all ranks hold in memory, and the state of this rank in it."""

    found: Resume
    state: dict[str, Any]


@dataclass(frozen=True, slots=True)
class _Choice:
    """What rank 0 found; `entry` is its number in the lineage of the tree."""

    step: int
    manifest_id: str
    world_size: int
    entry: int


def newest(attempt: Attempt, ranks: Ranks) -> Restored | None:
    """Return the newest checkpoint that each rank could read, or None for a start from nothing.

    What one rank cannot read is set aside for all, with its reason. CheckpointError where another
    number of ranks wrote it, or a rank does not see the tree that rank 0 uses.
    """
    while True:
        found = ranks.on_main(attempt.find)
        chosen = _choice(attempt, ranks, found)
        if chosen is None:
            return None
        read = ranks.together(partial(_read, attempt, ranks, found, chosen))
        unread = _first_reason(ranks, read)
        if unread is None and not isinstance(read, str):
            return read
        ranks.on_main(partial(attempt.set_aside, chosen.step, unread or ""))


def _choice(attempt: Attempt, ranks: Ranks, found: Resume | None) -> _Choice | None:
    told = None
    if found is not None:
        manifest = found.manifest
        entry = attempt.chain.entry.n
        told = [found.step, manifest.manifest_id, manifest.world_size, entry]
    told = ranks.tell(told)
    if told is None:
        return None
    chosen = _Choice(*told)
    if chosen.world_size != ranks.size:
        raise CheckpointError(
            f"the checkpoint of step {chosen.step} does not match this source: WORLD_SIZE was "
            f"{chosen.world_size} and now is {ranks.size}; random streams and the position in the "
            f"data belong to a rank each and cannot be dealt out anew: launch {chosen.world_size} "
            "ranks again, or start anew with another FLASHML_CKPT_DIR"
        )
    return chosen


def _read(attempt: Attempt, ranks: Ranks, found: Resume | None, chosen: _Choice) -> Restored | str:
    """Return this rank's state, or why it cannot be had."""
    if found is None:
        root = attempt.settings.ckpt_dir
        if not lineage.entry_path(root, chosen.entry).exists():
            raise CheckpointError(
                f"{root} is not the checkpoint tree that rank 0 uses; all ranks must share one "
                "directory: set FLASHML_CKPT_DIR to a volume that every node mounts"
            )
        try:
            loaded = store.load(root, chosen.step, lambda m: m.manifest_id == chosen.manifest_id)
        except OSError as error:
            return f"cannot be read: {error}"
        if not isinstance(loaded, Resume):
            return f"{loaded.part or 'checkpoint'} {loaded.reason}"
        found = loaded
    try:
        state = state_of(found, ranks.rank)
    except CheckpointError as error:
        return str(error)
    found.parts.clear()
    return Restored(found, state)


def _first_reason(ranks: Ranks, read: Restored | str) -> str | None:
    """Return why the first rank that cannot read the checkpoint cannot, None where all can."""
    own = read.encode() if isinstance(read, str) else b""
    told = [each.decode() for each in ranks.share(own)]
    where = "" if ranks.size == 1 else " [on rank {} of {}]"
    reasons = [text + where.format(rank, ranks.size) for rank, text in enumerate(told) if text]
    return reasons[0] if reasons else None
