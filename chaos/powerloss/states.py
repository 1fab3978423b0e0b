"""Every state that a power loss may leave, after each operation of a recording."""

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from chaos.powerloss.disk import Bytes, Disk, Effect, Image, Names, Size
from chaos.powerloss.operations import Kind, Operation, Tree

SECTOR_BYTES = 512
BLOCK_BYTES = 4096


@dataclass(frozen=True, slots=True)
class CrashState:
    """A volume after a power loss.

    `after` counts the operations performed before it, `lost` says what of them is not there, and
    `answered` are the items that somebody had been told are safe.
    """

    after: int
    how: str
    lost: tuple[str, ...]
    image: Image
    digest: str
    answered: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Loss:
    """One way of losing some of the pending effects."""

    how: str
    kept: tuple[Effect, ...]
    lost: tuple[str, ...]


def crash_states(
    base: Tree, operations: Sequence[Operation], answered: Sequence[str] = ()
) -> Iterator[CrashState]:
    """Yield every state of every prefix, each once; `answered` was promised before the first.

    Two losses that leave the same volume under the same promises are one state.
    """
    disk, promised, seen = Disk(base), tuple(answered), set()
    for after in range(len(operations) + 1):
        if after:
            operation = operations[after - 1]
            disk.perform(operation)
            promised += (operation.path,) if operation.kind is Kind.ANSWERED else ()
        for loss in losses(disk.pending):
            image = disk.crash(loss.kept)
            found = image_digest(image)
            if (found, promised) not in seen:
                seen.add((found, promised))
                yield CrashState(after, loss.how, loss.lost, image, found, promised)


def image_digest(image: Image) -> str:
    """Return one digest over the names and bytes of a volume."""
    lines = (f"{path}\0{found.sha256 if found else ''}\n" for path, found in sorted(image.items()))
    return hashlib.sha256("".join(lines).encode("utf-8", "surrogateescape")).hexdigest()


def losses(pending: Sequence[Effect]) -> Iterator[Loss]:
    """Yield every way of losing pending effects that is looked at.

    Nothing, everything; each one, and all but each one; all bytes or all names (with the files
    grown, as after a delayed allocation, or not); and each write torn.
    """
    effects = tuple(pending)
    yield Loss("nothing lost", effects, ())
    if not effects:
        return
    yield Loss("everything lost", (), _words(effects))
    for place, effect in enumerate(effects):
        others = effects[:place] + effects[place + 1 :]
        yield Loss("one lost", others, (effect.words,))
        yield Loss("all but one lost", (effect,), _words(others))
    names = tuple(effect for effect in effects if isinstance(effect, Names))
    rest = tuple(effect for effect in effects if not isinstance(effect, Names))
    yield Loss("bytes lost", names, _words(rest))
    yield Loss("names lost", rest, _words(names))
    grown = tuple(_grown(each) if isinstance(each, Bytes) else each for each in effects)
    yield Loss("bytes read as zeros", grown, _words(rest))
    for place, effect in enumerate(effects):
        if isinstance(effect, Bytes):
            for how, pieces in torn(effect):
                kept = (*effects[:place], *pieces, *effects[place + 1 :])
                yield Loss(f"torn: {how}", kept, (f"{effect.words}: {how}",))


def torn(effect: Bytes) -> Iterator[tuple[str, tuple[Effect, ...]]]:
    """Yield what may be there of one write, beyond all or nothing of it.

    A part that is not there reads as what was there before, or as zeros where the file grew.
    """
    size = len(effect.data)
    yield "grown, and no byte of it", (_grown(effect),)
    half = size // 2 // SECTOR_BYTES * SECTOR_BYTES or size // 2
    if half:
        yield f"only its first {half} bytes", (_piece(effect, 0, half),)
        yield (
            f"its size, and only its first {half} bytes",
            (_grown(effect), _piece(effect, 0, half)),
        )
    for unit in (SECTOR_BYTES, BLOCK_BYTES):
        if size > unit:
            rest = _piece(effect, unit, size)
            yield f"all but its first {unit} bytes", (_grown(effect), rest)
            last = (size - 1) // unit * unit
            yield f"all but its bytes from {last}", (_grown(effect), _piece(effect, 0, last))


def _grown(effect: Bytes) -> Size:
    return Size(effect.inode, effect.words, effect.offset + len(effect.data), grow=True)


def _piece(effect: Bytes, start: int, end: int) -> Bytes:
    return Bytes(effect.inode, effect.words, effect.offset + start, effect.data[start:end])


def _words(effects: Sequence[Effect]) -> tuple[str, ...]:
    return tuple(effect.words for effect in effects)
