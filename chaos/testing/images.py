"""The twin of what records and judges power losses: a save of one small part, in memory."""

import json
from collections.abc import Sequence
from hashlib import sha256

from chaos.blackout import PROMISED
from chaos.ports.images import Mounted, Recording
from chaos.powerloss.bundle import FOLDER, unpacked
from chaos.powerloss.disk import Disk, bytes_of
from chaos.powerloss.operations import Kind, Operation, Tree
from chaos.powerloss.rules import Judged
from chaos.powerloss.trace import PROMISE

ROOT = "/volume"
PART = bytes(range(256)) * 40
OLDER, NEWER = "step-000010", "step-000020"


def save(*, synced: bool = True) -> list[Operation]:
    """Return what a save of the newer step does."""
    part = f".staging/{NEWER}/part"
    done = [
        Operation(Kind.MKDIR, f".staging/{NEWER}"),
        Operation(Kind.CREATE, part),
        Operation(Kind.WRITE, part, offset=0, data=PART),
        Operation(Kind.FSYNC, part),
        Operation(Kind.FSYNC, f".staging/{NEWER}"),
        Operation(Kind.RENAME, f".staging/{NEWER}", to=NEWER),
        Operation(Kind.FSYNC, ""),
        Operation(Kind.ANSWERED, NEWER),
    ]
    return [each for each in done if synced or each.kind is not Kind.FSYNC]


class FakeImages:
    """Saves with or without fsync; a step is whole where its part is."""

    def __init__(self, *, synced: bool = True) -> None:
        self.synced = synced
        self.asked: list[str] = []

    def record(self, what: str) -> Recording:
        """Return the recording of a save over a tree with an older step."""
        before = {".staging": None, OLDER: None, f"{OLDER}/part": PART}
        done, disk = save(synced=self.synced), Disk(before)
        for operation in done:
            disk.perform(operation)
        self.asked.append(what)
        after = bytes_of(disk.crash(disk.pending))
        return Recording(ROOT, before, after, "".join(traced(each) for each in done))

    def judge(self, what: str, bundle: bytes) -> tuple[Judged, ...]:
        """Judge the trees of a bundle by the digest of their parts."""
        self.asked.append(what)
        states = json.loads(unpacked([bundle], FOLDER)["states.json"] or b"")
        return tuple(_judged(what, state["tree"]) for state in states)

    def mount(self, what: str, volumes: Sequence[bytes]) -> tuple[Mounted, ...]:
        """Judge archives as if each had been a disk image."""
        self.asked.append(what)
        return tuple(
            Mounted(sha256(data).hexdigest(), _judged(what, _digests(unpacked([data], "volume"))))
            for data in volumes
        )


def _digests(tree: Tree) -> dict[str, str | None]:
    return {path: None if data is None else sha256(data).hexdigest() for path, data in tree.items()}


def _judged(what: str, tree: dict[str, str | None]) -> Judged:
    items = dict.fromkeys(PROMISED[what], "whole")
    return Judged(True, items | {step: _item(tree, step) for step in (OLDER, NEWER)}, "")


def _item(tree: dict[str, str | None], step: str) -> str:
    if step not in tree:
        return "absent"
    return "whole" if tree.get(f"{step}/part") == sha256(PART).hexdigest() else "torn"


def traced(operation: Operation) -> str:
    """Return the line that strace would write of an operation below ROOT."""
    name = _hexed(f"{ROOT}/{operation.path}".rstrip("/").encode())
    where = f"7<{name}>"
    data = _hexed(operation.data)
    match operation.kind:
        case Kind.CREATE:
            call = f'openat(AT_FDCWD</>, "{name}", O_WRONLY|O_CREAT|O_EXCL, 0644) = {where}'
        case Kind.WRITE:
            size = len(operation.data)
            call = f'pwrite64({where}, "{data}", {size}, {operation.offset}) = {size}'
        case Kind.FSYNC:
            call = f"fsync({where}) = 0"
        case Kind.TRUNCATE:
            call = f"ftruncate({where}, {operation.size_bytes}) = 0"
        case Kind.RENAME | Kind.LINK:
            call = f'{operation.kind}("{name}", "{_hexed(f"{ROOT}/{operation.to}".encode())}") = 0'
        case Kind.ANSWERED:
            said = PROMISE + operation.path.encode()
            call = f'write(1<pipe:[1]>, "{_hexed(said)}", {len(said)}) = {len(said)}'
        case Kind.SYNC:
            call = "sync() = 0"
        case _:
            call = f'{operation.kind}("{name}") = 0'
    return f"12 {call}\n"


def _hexed(data: bytes) -> str:
    return "".join(f"\\x{byte:02x}" for byte in data)
