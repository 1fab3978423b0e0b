"""The volumes of one run, reached through two helper containers.

One is the runtime's own user, for bytes and room; the other one, started where it is needed, may
remount and nothing else.
"""

import base64

from docker import DockerClient
from pydantic import BaseModel

from chaos.model import CannotRun, JsonMap
from chaos.ports.disks import Hurt, HurtBlobs, HurtStep, HurtTree, Mode, Room, Volume
from chaos.targets.containers import COORDINATOR, RunContainers
from chaos.targets.engine import UndoAction, by_labels
from chaos.targets.helper import Helper, Reach
from chaos.targets.runtime import CoordinatorRuntime

SLACK_S = 10.0
HEAL_PREFIX = "chaos-healed"
PLACES = tuple((each.value, f"/look-{each}", f"/touch-{each}") for each in Volume)
TOUCHING = Reach(volumes=PLACES, network="none")
REMOUNTING = Reach(volumes=PLACES, network="none", user="0:0", capabilities=("SYS_ADMIN",))


class FileEntry(BaseModel):
    """A file before and after."""

    path: str
    before: str | None
    after: str | None
    digest: str = ""

    def value(self) -> Hurt:
        """Return it as the port states it."""
        return Hurt(self.path, self.before, self.after)


class StepEntry(BaseModel):
    """A step that was hit."""

    step: int
    manifest_id: str | None
    attempt_id: str | None
    counts: bool
    files: list[FileEntry]


class DamageAnswer(BaseModel):
    """What inside/damage.py answers."""

    at_ns: int
    reason: str | None
    steps: list[StepEntry]


class RotAnswer(BaseModel):
    """What inside/rot.py answers."""

    at_ns: int
    reason: str | None
    files: list[FileEntry]


class KeptAnswer(BaseModel):
    """What inside/rot.py answers when it is asked for what it kept."""

    data: str | None


class RoomAnswer(BaseModel):
    """What inside/room.py answers."""

    at_ns: int
    refused: str | None
    total_bytes: int
    free_bytes: int
    errno: str | None
    tries: int

    def value(self) -> Room:
        """Return it as the port states it."""
        return Room(**self.model_dump())


class VolumeDisks:
    """The volumes of one run."""

    def __init__(self, touching: Helper, remounting: Helper) -> None:
        self._touching = touching
        self._remounting = remounting

    def hurt_checkpoints(
        self, job_id: str, task_id: str, mode: Mode, depth: int, choice: int
    ) -> HurtTree:
        """Damage the newest `depth` checkpoints of a task; `choice` picks file and place."""
        root = f"{_touch(Volume.CHECKPOINTS)}/{job_id}/{task_id}"
        request: JsonMap = {"root": root, "mode": mode, "depth": depth, "choice": choice}
        answer = self._touching.run("damage", request, DamageAnswer)
        steps = (
            HurtStep(
                each.step,
                each.manifest_id or "",
                each.attempt_id or "",
                each.counts,
                tuple(file.value() for file in each.files),
            )
            for each in answer.steps
        )
        return HurtTree(answer.at_ns, answer.reason, tuple(steps))

    def hurt_artifact(self, digests: tuple[str, ...], mode: Mode, choice: int) -> HurtBlobs:
        """Damage the largest of these stored artifacts, and keep what it was."""
        request: JsonMap = {
            "root": _touch(Volume.ARTIFACTS),
            "mode": mode,
            "digests": [*digests],
            "choice": choice,
        }
        answer = self._touching.run("rot", request, RotAnswer)
        blobs = tuple((each.digest, each.value()) for each in answer.files)
        return HurtBlobs(answer.at_ns, answer.reason, blobs)

    def fill(self, volume: Volume) -> Room:
        """Leave no room on a volume that has a size of its own; again where room came back."""
        return _room(self._touching, volume, "fill")

    def set_read_only(self, volume: Volume, timeout_s: float) -> Room:
        """Make a volume that has a size of its own read-only for everybody."""
        return _remounted(self._remounting, volume, timeout_s, read_only=True)

    def forbid(self, volume: Volume) -> Room:
        """Take the right to write to the volume's directories from their owner."""
        return _room(self._touching, volume, "forbid")

    def probe(self, volume: Volume) -> Room:
        """Look at a volume and try to write to it."""
        return _room(self._touching, volume, "probe")


def disk_helpers(client: DockerClient, run_id: str) -> tuple[Helper, Helper]:
    """Return the helper that touches, and the one that remounts."""
    return (
        Helper(client, run_id, "disks", TOUCHING),
        Helper(client, run_id, "remount", REMOUNTING),
    )


def _room(helper: Helper, volume: Volume, what: str) -> Room:
    request: JsonMap = {"do": what, "root": _touch(volume)}
    return helper.run("room", request, RoomAnswer, SLACK_S * 3).value()


def _remounted(helper: Helper, volume: Volume, timeout_s: float, *, read_only: bool) -> Room:
    request: JsonMap = {
        "do": "remount",
        "root": _touch(volume),
        "read_only": read_only,
        "timeout_s": timeout_s,
    }
    return helper.run("room", request, RoomAnswer, timeout_s + SLACK_S).value()


def _touch(volume: Volume) -> str:
    return f"/touch-{volume}"


def _is_there(client: DockerClient, run_id: str, volume: str) -> bool:
    labels = by_labels(run_id, {"com.docker.compose.volume": volume})
    return bool(client.volumes.list(filters=labels))


def _drain(client: DockerClient, run_id: str, args: JsonMap) -> None:
    """Remove the filler."""
    volume = Volume(str(args["volume"]))
    if _is_there(client, run_id, volume):
        _room(disk_helpers(client, run_id)[0], volume, "drain")


def _permit(client: DockerClient, run_id: str, args: JsonMap) -> None:
    """Give the right to write back."""
    volume = Volume(str(args["volume"]))
    if _is_there(client, run_id, volume):
        _room(disk_helpers(client, run_id)[0], volume, "permit")


def _make_writable(client: DockerClient, run_id: str, args: JsonMap) -> None:
    """Remount a volume for writing."""
    volume = Volume(str(args["volume"]))
    if not _is_there(client, run_id, volume):
        return
    found = _remounted(disk_helpers(client, run_id)[1], volume, SLACK_S, read_only=False)
    if found.errno is not None:
        raise CannotRun(f"volume {volume} stays read-only: {found.errno}")


def _restore(client: DockerClient, run_id: str, args: JsonMap) -> None:
    """Upload again what blobs were before they were hit; one that nobody kept was never hit."""
    digests = args["digests"]
    if not _is_there(client, run_id, Volume.ARTIFACTS) or not isinstance(digests, list):
        return
    helper, containers = disk_helpers(client, run_id)[0], RunContainers(client, run_id)
    runtime = CoordinatorRuntime(
        lambda: f"http://127.0.0.1:{containers.published(COORDINATOR, 8000)}"
    )
    for digest in digests:
        kept = helper.run("rot", {"kept": digest}, KeptAnswer).data
        if kept is None:
            continue
        answer = runtime.store(f"{HEAL_PREFIX}/{digest}", base64.b64decode(kept))
        if answer.refused is not None:
            raise CannotRun(f"artifact {digest} is not whole again: {answer.refused}")


UNDOS: dict[str, UndoAction] = {
    "drain_volume": _drain,
    "volume_writable": _make_writable,
    "directories_writable": _permit,
    "restore_artifacts": _restore,
}
