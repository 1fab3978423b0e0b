"""Who may write to a checkpoint tree, and whose checkpoints count: the fence on a shared volume.

`.lineage/000001.json` and so on are created once, durably and exclusively, and never changed. The
highest number is the head: its attempt alone commits. An entry states the checkpoint that its
attempt takes over; what a predecessor writes beyond that step is foreign to the chain.
"""

import os
import re
from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Annotated

from pydantic import Field, StringConstraints, ValidationError

from flashruntime.checkpoint import files
from flashruntime.checkpoint.manifest import seal, step_name, unseal
from flashruntime.checkpoint.store import Rejection, load_manifest, steps
from flashruntime.errors import CheckpointError, InvalidInput, Superseded
from flashruntime.protocol.base import NodeId, OpenModel
from flashruntime.protocol.checkpoints import Manifest, TakenOver

LINEAGE = ".lineage"
MAX_ENTRY_BYTES = 64 * 1024
_ENTRY_NAME = re.compile(r"([0-9]{6,})\.json")
_PLAIN = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")


class Entry(OpenModel):
    """One attempt's claim on the tree; `epoch` orders the attempts of one job."""

    n: int = Field(ge=1)
    attempt_id: NodeId
    job_id: Annotated[str, StringConstraints(min_length=1, max_length=256)]
    epoch: int = Field(ge=0)
    takes_over: TakenOver | None
    created: datetime


@dataclass(frozen=True, slots=True)
class Claim:
    """Who wants to begin; without an `epoch` it comes after whoever is there."""

    attempt_id: str
    job_id: str
    epoch: int | None = None

    def __post_init__(self) -> None:
        if not _PLAIN.fullmatch(self.attempt_id):
            raise InvalidInput(
                f"attempt id {self.attempt_id!r} must be 1 to 128 of A-Z a-z 0-9 . _ -, "
                "starting with a letter or digit"
            )
        if not 1 <= len(self.job_id) <= 256 or (self.epoch is not None and self.epoch < 0):
            raise InvalidInput("a claim needs a job id of 1 to 256 characters and an epoch >= 0")


def numbers(root: Path) -> list[int]:
    """Return the numbers of all entries, ascending."""
    try:
        names = os.listdir(root / LINEAGE)  # noqa: PTH208 (names alone, no Path objects)
    except FileNotFoundError:
        return []
    return sorted(int(match[1]) for name in names if (match := _ENTRY_NAME.fullmatch(name)))


def entry_path(root: Path, number: int) -> Path:
    """Return where entry `number` lies."""
    return root / LINEAGE / f"{number:06d}.json"


def read(root: Path, known: list[int]) -> list[Entry]:
    """Return the readable ones of the `known` entries; a damaged one vouches for nothing."""
    entries = []
    for number in known:
        try:
            content = unseal(files.read_small(entry_path(root, number), MAX_ENTRY_BYTES))
            entry = Entry.model_validate(content)
        except (CheckpointError, ValidationError):
            continue
        if entry.n == number:
            entries.append(entry)
    return entries


def publish(root: Path, entry: Entry) -> bool:
    """Create the entry durably; False where another attempt took its number first."""
    data = seal(entry.model_dump(mode="json"))
    return files.create_exclusively(entry_path(root, entry.n), data, f".{entry.attempt_id}.tmp")


def check_may_follow(claim: Claim, entries: list[Entry]) -> None:
    """Raise Superseded where the lineage already holds something newer than the claim.

    Epochs order the attempts of one job; a job that another job followed is over.
    """
    if not entries or claim.epoch is None:
        return
    head = entries[-1]
    if head.job_id != claim.job_id:
        if any(entry.job_id == claim.job_id for entry in entries):
            raise Superseded(
                f"job {claim.job_id} was followed by job {head.job_id} in this checkpoint tree; "
                "use another FLASHML_CKPT_DIR or a new job"
            )
    elif head.epoch >= claim.epoch:
        raise Superseded(
            f"attempt {head.attempt_id} (epoch {head.epoch}) holds this checkpoint tree; "
            f"attempt {claim.attempt_id} (epoch {claim.epoch}) came too late and must stop"
        )


class Admission:
    """Which manifests belong to the chain that ends in the last of `entries`."""

    def __init__(self, entries: list[Entry]) -> None:
        cap: float = float("inf")
        self._caps: dict[str, float] = {}
        self._taken_over: set[str] = set()
        for entry in reversed(entries):
            self._caps.setdefault(entry.attempt_id, cap)
            taken = entry.takes_over
            cap = min(cap, taken.step if taken else -1)
            if taken:
                self._taken_over.add(taken.manifest_id)
        self._cap_of_strangers = cap

    def __call__(self, manifest: Manifest) -> bool:
        """Return whether `manifest` counts; attempts without any entry precede the first one."""
        cap = self._caps.get(manifest.attempt_id, self._cap_of_strangers)
        return manifest.step <= cap or manifest.manifest_id in self._taken_over


def admission(root: Path) -> Admission:
    """Return which manifests of the tree count now."""
    return Admission(without_vain(root, read(root, numbers(root))))


def without_vain(
    root: Path, entries: list[Entry], saved_elsewhere: Collection[str] = ()
) -> list[Entry]:
    """Leave out the last attempts that began from a checkpoint which was being pruned meanwhile.

    Until such an attempt saves, here or elsewhere, what its predecessor saved last is the newest.
    """
    while entries and entries[-1].attempt_id not in saved_elsewhere and _is_vain(root, entries[-1]):
        entries = entries[:-1]
    return entries


def _is_vain(root: Path, entry: Entry) -> bool:
    """Return whether what the attempt took over is gone and it has saved nothing itself."""
    taken = entry.takes_over
    if taken is None or os.path.lexists(root / step_name(taken.step)):
        return False
    for step in steps(root):
        try:
            manifest = load_manifest(root, step)
        except FileNotFoundError:
            continue
        if isinstance(manifest, Rejection) or manifest.attempt_id == entry.attempt_id:
            return False
    return True


@dataclass(frozen=True, slots=True)
class Hold:
    """An attempt's place in the lineage of the tree `root`."""

    root: Path
    entry: Entry

    def is_head(self) -> bool:
        """Return whether no later attempt has begun."""
        found = numbers(self.root)
        if self.entry.n not in found:
            raise CheckpointError(
                f"{entry_path(self.root, self.entry.n)} is gone: the checkpoint tree was removed "
                "or replaced while this attempt uses it"
            )
        return found[-1] == self.entry.n

    def check(self) -> None:
        """Raise Superseded once a later attempt has begun."""
        if not self.is_head():
            raise Superseded(
                f"attempt {self.entry.attempt_id} was superseded: attempt number "
                f"{numbers(self.root)[-1]} holds {self.root.name} now; this process must stop"
            )
