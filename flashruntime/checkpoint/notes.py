"""Later findings about a checkpoint, in files beside the manifests, which never change."""

from collections.abc import Collection
from pathlib import Path

from pydantic import ValidationError

from flashruntime.checkpoint import files
from flashruntime.checkpoint.manifest import seal, unseal
from flashruntime.checkpoint.store import REJECTED, sidecar
from flashruntime.errors import CheckpointError
from flashruntime.protocol.base import OpenModel
from flashruntime.protocol.checkpoints import Manifest, Step

MAX_NOTE_BYTES = 256 * 1024


class Note(OpenModel):
    """What an attempt found out about a checkpoint."""

    step: Step
    manifest_id: str
    reason: str
    by: str


def write(root: Path, manifest: Manifest, kind: str, attempt_id: str, reason: str) -> None:
    """Note something about a checkpoint durably, unless it is noted already."""
    path = sidecar(root, manifest, kind)
    files.make_directory(path.parent)
    found = Note(step=manifest.step, manifest_id=manifest.manifest_id, reason=reason, by=attempt_id)
    data = seal(found.model_dump(mode="json"))
    files.create_exclusively(path, data, f".{path.name}.{attempt_id}.tmp")


def set_aside_by(root: Path, attempt_id: str, known: Collection[str]) -> list[tuple[str, Note]]:
    """Return what an attempt set aside, but not the notes whose names are `known`."""
    try:
        paths = [path for path in (root / REJECTED).iterdir() if path.suffix == ".json"]
    except OSError:
        return []
    found = []
    for path in paths:
        if path.name in known or path.name.startswith("."):
            continue
        try:
            content = unseal(files.read_small(path, MAX_NOTE_BYTES))
            found.append((path.name, Note.model_validate(content)))
        except (CheckpointError, ValidationError):
            continue
    return [(name, note) for name, note in found if note.by == attempt_id]
