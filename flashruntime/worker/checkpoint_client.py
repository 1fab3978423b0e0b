"""The coordinator's checkpoint calls over HTTP."""

import hashlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import BinaryIO

import httpx

from flashruntime.access import raise_for
from flashruntime.client import CHUNK_BYTES, PREFIX, CoordinatorClient
from flashruntime.errors import ArtifactCorrupt
from flashruntime.protocol.checkpoints import (
    CheckpointRecord,
    CommitRequest,
    LatestCheckpoint,
    Part,
    PartsAnswer,
    PartsRequest,
    SetAsideRequest,
    TaskName,
)


class CheckpointClient(CoordinatorClient):
    """Also has the calls about checkpoints; threads may share one."""

    def announce(self, name: TaskName, request: PartsRequest) -> Sequence[str]:
        """Announce the parts of the next checkpoint; return the digests to be sent."""
        return self._post(f"{_path(name)}/parts", request, PartsAnswer).missing

    def put_part(self, name: TaskName, lease_id: str, part: Part, content: Iterator[bytes]) -> None:
        """Send the bytes of an announced part; InvalidInput if they hash to something else."""
        self._send(
            "PUT",
            f"{_path(name)}/parts/{part.sha256}",
            params={"lease_id": lease_id},
            content=content,
            headers={"Content-Length": str(part.size_bytes)},
        )

    def commit(self, name: TaskName, request: CommitRequest) -> CheckpointRecord:
        """Commit a checkpoint whose parts have been sent."""
        return self._post(f"{_path(name)}/commit", request, CheckpointRecord)

    def latest(self, name: TaskName, skip: Sequence[str]) -> LatestCheckpoint:
        """Return the checkpoint to resume from, without those to skip."""
        left_out = ",".join(skip) or None
        return self._get(f"{_path(name)}/latest", LatestCheckpoint, skip=left_out)

    def set_aside(self, name: TaskName, request: SetAsideRequest) -> CheckpointRecord:
        """Tell that a checkpoint is of no use."""
        return self._post(f"{_path(name)}/set-aside", request, CheckpointRecord)

    def get_part(self, name: TaskName, part: Part, to: Path) -> None:
        """Download a part into the file `to`, in place of what is there.

        ArtifactCorrupt unless the bytes are those that the manifest speaks of.
        """
        path = f"{PREFIX}{_path(name)}/parts/{part.sha256}"
        try:
            with self._http.stream("GET", path) as answer, to.open("wb") as file:
                if answer.status_code != 200:
                    answer.read()
                    raise_for(answer)
                _receive(answer, part, file)
        except httpx.HTTPError as error:
            raise self._unreachable("GET", path, error) from error


def _receive(answer: httpx.Response, part: Part, file: BinaryIO) -> None:
    digest, size_bytes = hashlib.sha256(), 0
    for chunk in answer.iter_bytes(CHUNK_BYTES):
        size_bytes += file.write(chunk)
        digest.update(chunk)
        if size_bytes > part.size_bytes:
            break
    if (digest.hexdigest(), size_bytes) != (part.sha256, part.size_bytes):
        raise ArtifactCorrupt(
            f"part {part.key!r}: {size_bytes} of {part.size_bytes} bytes came, with sha256 "
            f"{digest.hexdigest()} instead of {part.sha256}"
        )


def _path(name: TaskName) -> str:
    return f"/jobs/{name.job_id}/tasks/{name.task}/checkpoints"
