"""A power loss at every moment of a recorded save: enumerated, rebuilt, used again, judged."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice

from chaos.model import CannotRun, JsonMap, Verdict
from chaos.ports.images import DiskImages, Recording
from chaos.powerloss.bundle import chosen, packed, volume
from chaos.powerloss.disk import Disk, Image, bytes_of
from chaos.powerloss.operations import Operation
from chaos.powerloss.rules import Judged, told, violations
from chaos.powerloss.states import CrashState, crash_states
from chaos.powerloss.trace import MEMORY_ONLY, NotModelled, operations

JUDGED_AT_ONCE, MOUNTED_AT_ONCE = 300, 16
OWNER = 10001
"""The user of the runtime image, whose the files of a volume are."""
PROMISED = {
    "checkpoint": ("step-000010",),
    "coordinator": ("small-old", "large-old", "job-old"),
    "takeover": ("resume-10",),
}
"""What can be recorded, with the items that are promised before the recording begins."""


@dataclass(frozen=True, slots=True)
class Choice:
    """How many states are looked at, None for all: `limit` as directories, and `mounts` of those
    that lost something as disk images too.
    """

    seed: int
    limit: int | None
    mounts: int | None


@dataclass(frozen=True, slots=True)
class Findings:
    """What was seen of one recording; `states` are those looked at, in JSON, `known` their number
    before the choice, and `lossy` how many of the states looked at had lost something.
    """

    what: str
    operations: tuple[str, ...]
    known: int
    lossy: int
    states: tuple[JsonMap, ...]
    mounted: tuple[JsonMap, ...]

    @property
    def bad(self) -> tuple[JsonMap, ...]:
        """Those that something is wrong with."""
        return tuple(state for state in (*self.states, *self.mounted) if state["violations"])

    @property
    def verdict(self) -> Verdict:
        """Valid only where power losses that lost something were looked at."""
        if self.bad:
            return Verdict.VIOLATED
        return Verdict.VALID if self.lossy else Verdict.UNKNOWN

    def to_json(self) -> JsonMap:
        """Return it as JSON."""
        return {
            "what": self.what,
            "verdict": str(self.verdict),
            "operations": [*self.operations],
            "states_known": self.known,
            "states_judged": len(self.states),
            "states_lossy": self.lossy,
            "images_mounted": len(self.mounted),
            "how": dict(Counter(str(state["how"]).partition(":")[0] for state in self.states)),
            "states": [dict(state) for state in self.states],
            "mounted": [dict(state) for state in self.mounted],
        }


def explore(
    images: DiskImages, what: str, choice: Choice, say: Callable[[str], object]
) -> Findings:
    """Record, enumerate, rebuild and judge; CannotRun where the trace does not tell it all.

    The states are worked out twice, so that only those that are judged next are held with bytes.
    """
    recording = images.record(what)
    performed = understood(recording)
    say(f"{what}: {len(performed)} operations on the volume recorded")
    whole = partial(crash_states, recording.before, performed, PROMISED[what])
    known = [replace(state, image={}) for state in whole()]
    light = chosen(known, choice.limit, choice.seed)
    lossy = [state for state in light if state.lost]
    say(f"{what}: {len(known)} states after a power loss, {len(light)} of them looked at")
    wanted = set(map(_key, light))
    looked = (state for state in whole() if _key(state) in wanted)
    on_disk = set(map(_key, chosen(lossy, choice.mounts, choice.seed)))
    rows: list[JsonMap] = []
    disks: list[JsonMap] = []
    for batch in _batches(looked, JUDGED_AT_ONCE):
        judged = images.judge(what, packed(batch, OWNER))
        rows += [_row(state, seen) for state, seen in zip(batch, judged, strict=True)]
        for few in _batches((s for s in batch if _key(s) in on_disk), MOUNTED_AT_ONCE):
            found = images.mount(what, [volume(state, "volume", OWNER) for state in few])
            pairs = zip(few, found, strict=True)
            disks += [_row(state, disk.judged, disk.image_sha256) for state, disk in pairs]
    return Findings(
        what,
        tuple(str(each) for each in performed),
        len(known),
        len(lossy),
        tuple(rows),
        tuple(disks),
    )


def _key(state: CrashState) -> tuple[str, tuple[str, ...]]:
    return state.digest, state.answered


def _batches(states: Iterable[CrashState], size: int) -> Iterator[list[CrashState]]:
    left = iter(states)
    while batch := list(islice(left, size)):
        yield batch


def understood(recording: Recording) -> list[Operation]:
    """Return the operations of a recording, once they lead to the volume that was found after it.

    That volume was read through another channel than the trace.
    """
    try:
        performed = operations(recording.trace, recording.root, recording.before)
    except NotModelled as error:
        raise CannotRun(f"the recorded save cannot be modelled: {error}") from error
    disk = Disk(recording.before)
    for operation in performed:
        disk.perform(operation)
    seen = {path: data for path, data in recording.after.items() if _lasting(path)}
    if different := sorted(_differences(disk.crash(disk.pending), seen)):
        raise CannotRun(f"the trace does not explain what lies at {different[0]} on the volume")
    return performed


def _differences(image: Image, seen: dict[str, bytes | None]) -> set[str]:
    modelled = {path: data for path, data in bytes_of(image).items() if _lasting(path)}
    missing = modelled.keys() ^ seen.keys()
    return missing | {
        path for path in modelled.keys() & seen.keys() if modelled[path] != seen[path]
    }


def _lasting(path: str) -> bool:
    return not path.endswith(MEMORY_ONLY)


def _row(state: CrashState, judged: Judged, image_sha256: str = "") -> JsonMap:
    row = told(state, judged, violations(state, judged))
    return {**row, "image_sha256": image_sha256} if image_sha256 else row


def worst(found: Sequence[Findings]) -> Verdict:
    """Return the verdict of several recordings."""
    return Verdict.worst([each.verdict for each in found])
