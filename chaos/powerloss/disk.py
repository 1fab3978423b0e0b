"""A volume while operations are performed on it: what is durable, and what a crash may still lose.

A file's bytes become durable by an fsync of the file, names by an fsync of their directory: an
fsync of a file does nothing for its name. A rename within a directory is one step; from one
directory to another it is two, and each may be lost alone.
"""

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import count

from chaos.powerloss.operations import Kind, Operation, Tree

ROOT = 0


@dataclass(frozen=True, slots=True)
class Names:
    """Entries of a directory that change together; None removes a name."""

    inode: int
    words: str
    entries: tuple[tuple[str, int | None], ...]


@dataclass(frozen=True, slots=True)
class Bytes:
    """Bytes of a file that change at an offset; the file grows as far as they need."""

    inode: int
    words: str
    offset: int
    data: bytes


@dataclass(frozen=True, slots=True)
class Size:
    """The size of a file changes; `grow` never makes it smaller. New bytes are zero."""

    inode: int
    words: str
    size_bytes: int
    grow: bool = False


Effect = Names | Bytes | Size


@dataclass(frozen=True, slots=True)
class Content:
    """The bytes of a file with their digest."""

    data: bytes
    sha256: str


Image = dict[str, Content | None]
"""A volume after a crash: the content of each file by its path, None for a directory."""


def bytes_of(image: Image) -> dict[str, bytes | None]:
    """Return the bytes alone."""
    return {path: None if found is None else found.data for path, found in image.items()}


class Impossible(Exception):
    """The operations do not fit the volume: a name is missing, or taken."""


class Disk:
    """A volume. `pending` are the effects that a crash may lose, in the order they were made."""

    def __init__(self, base: Tree) -> None:
        """Begin with a volume of which everything is durable."""
        self._numbers = count(ROOT + 1)
        self._live: dict[int, dict[str, int]] = {ROOT: {}}
        self._sizes: dict[int, int] = {}
        self._folders: dict[int, dict[str, int]] = {ROOT: {}}
        self._files: dict[int, bytes] = {}
        self.pending: list[Effect] = []
        for path, data in sorted(base.items()):
            self.perform(Operation(Kind.MKDIR if data is None else Kind.CREATE, path))
            if data:
                self.perform(Operation(Kind.WRITE, path, offset=0, data=data))
        self.perform(Operation(Kind.SYNC, ""))

    def perform(self, operation: Operation) -> None:
        """Perform one operation; Impossible where the volume does not allow it."""
        match operation.kind:
            case Kind.MKDIR | Kind.CREATE:
                self._make(operation)
            case Kind.WRITE:
                inode = self._file(operation.path)
                offset = self._sizes[inode] if operation.offset is None else operation.offset
                self._do(Bytes(inode, str(operation), offset, operation.data))
            case Kind.TRUNCATE:
                self._do(Size(self._file(operation.path), str(operation), operation.size_bytes))
            case Kind.FSYNC:
                self._settle({self._find(operation.path)})
            case Kind.SYNC:
                self._settle({effect.inode for effect in self.pending})
            case Kind.RENAME:
                self._rename(operation)
            case Kind.LINK:
                folder, name = self._place(operation.to)
                self._do(Names(folder, str(operation), ((name, self._find(operation.path)),)))
            case Kind.UNLINK:
                self._find(operation.path)
                folder, name = self._place(operation.path)
                self._do(Names(folder, str(operation), ((name, None),)))
            case Kind.ANSWERED:
                pass

    def crash(self, kept: Sequence[Effect]) -> Image:
        """Return the volume as found after a crash that kept these effects, in this order."""
        folders = dict(self._folders)
        changes: dict[int, list[Bytes | Size]] = {}
        for effect in kept:
            if isinstance(effect, Names):
                folders[effect.inode] = _renamed(folders[effect.inode], effect)
            else:
                changes.setdefault(effect.inode, []).append(effect)
        found: Image = {}
        for path, inode in _walk(folders, ROOT, "", ()):
            kept_here = tuple(changes.get(inode, ()))
            is_folder = inode in folders
            found[path] = None if is_folder else content(self._files[inode], kept_here)
        return found

    def _do(self, effect: Effect) -> None:
        self.pending.append(effect)
        if isinstance(effect, Names):
            self._live[effect.inode] = _renamed(self._live[effect.inode], effect)
        elif isinstance(effect, Bytes):
            end = effect.offset + len(effect.data)
            self._sizes[effect.inode] = max(self._sizes[effect.inode], end)
        else:
            self._sizes[effect.inode] = effect.size_bytes

    def _make(self, operation: Operation) -> None:
        folder, name = self._place(operation.path)
        inode = next(self._numbers)
        if name in self._live[folder]:
            raise Impossible(f"{operation}: the name is taken")
        if operation.kind is Kind.MKDIR:
            self._live[inode], self._folders[inode] = {}, {}
        else:
            self._sizes[inode], self._files[inode] = 0, b""
        self._do(Names(folder, str(operation), ((name, inode),)))

    def _rename(self, operation: Operation) -> None:
        inode = self._find(operation.path)
        (old, name), (new, to) = self._place(operation.path), self._place(operation.to)
        if old == new:
            self._do(Names(old, str(operation), ((name, None), (to, inode))))
            return
        self._do(Names(new, f"{operation}: the new name", ((to, inode),)))
        self._do(Names(old, f"{operation}: the end of the old name", ((name, None),)))

    def _settle(self, inodes: set[int]) -> None:
        """Make the effects on these files and directories durable."""
        changes: dict[int, list[Bytes | Size]] = {}
        for effect in (effect for effect in self.pending if effect.inode in inodes):
            if isinstance(effect, Names):
                self._folders[effect.inode] = _renamed(self._folders[effect.inode], effect)
            else:
                changes.setdefault(effect.inode, []).append(effect)
        for inode, found in changes.items():
            self._files[inode] = content(self._files[inode], tuple(found)).data
        self.pending = [effect for effect in self.pending if effect.inode not in inodes]

    def exists(self, path: str) -> bool:
        """Return whether a process would find something at `path` now."""
        try:
            self._find(path)
        except Impossible:
            return False
        return True

    def _find(self, path: str) -> int:
        inode = ROOT
        for name in path.split("/") if path else ():
            found = self._live.get(inode, {}).get(name)
            if found is None:
                raise Impossible(f"there is no {path}")
            inode = found
        return inode

    def _file(self, path: str) -> int:
        inode = self._find(path)
        if inode not in self._sizes:
            raise Impossible(f"{path} is a directory")
        return inode

    def _place(self, path: str) -> tuple[int, str]:
        parent, _, name = path.rpartition("/")
        folder = self._find(parent)
        if not name or folder not in self._live:
            raise Impossible(f"there can be no {path!r}")
        return folder, name


def _renamed(entries: dict[str, int], effect: Names) -> dict[str, int]:
    changed = dict(entries)
    for name, inode in effect.entries:
        if inode is None:
            changed.pop(name, None)
        else:
            changed[name] = inode
    return changed


def _walk(
    folders: dict[int, dict[str, int]], folder: int, prefix: str, above: tuple[int, ...]
) -> Iterator[tuple[str, int]]:
    for name, inode in sorted(folders[folder].items()):
        yield prefix + name, inode
        if inode in folders and inode not in above:
            yield from _walk(folders, inode, f"{prefix}{name}/", (*above, folder))


@lru_cache(maxsize=512)
def content(base: bytes, changes: tuple[Bytes | Size, ...]) -> Content:
    """Return a file's bytes after these changes of `base`."""
    data = bytearray(base)
    for change in changes:
        if isinstance(change, Size):
            if not change.grow:
                del data[change.size_bytes :]
            data.extend(bytes(max(0, change.size_bytes - len(data))))
        else:
            data.extend(bytes(max(0, change.offset - len(data))))
            data[change.offset : change.offset + len(change.data)] = change.data
    return Content(bytes(data), hashlib.sha256(data).hexdigest())
