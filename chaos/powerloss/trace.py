"""Reads the operations on a volume from what `strace -f -y -xx -s ALL` wrote.

The trace is taken with its data, so that a file that is written over (a database) is known at every
moment as well as one that is written once. What is not modelled is refused, never passed over.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import PurePosixPath

from chaos.powerloss.disk import Disk
from chaos.powerloss.operations import Kind, Operation, Tree

PROMISE = b"chaos: answered "
"""What a recorded process writes outside the volume, before the item that is now promised."""
CALLS = (
    "open,openat,creat,mkdir,mkdirat,write,pwrite64,writev,pwritev,fsync,fdatasync,sync,syncfs,"
    "rename,renameat,renameat2,link,linkat,symlink,symlinkat,unlink,unlinkat,rmdir,truncate,"
    "ftruncate,fallocate,lseek,copy_file_range,sendfile,splice,mmap"
)
REFUSED = {"copy_file_range", "sendfile", "splice", "symlink", "symlinkat", "fallocate", "pwritev"}
_LINE = re.compile(r"(\d+) +(\w+)\((.*)\) += (-?\d+|0x[0-9a-f]+)(?:<([^>]*)>(\(deleted\))?)?")
_BEGUN = re.compile(r"(\d+) +(\w+\(.*) <unfinished \.\.\.>")
_ENDED = re.compile(r"(\d+) +<\.\.\. \w+ resumed>(.*)")
_TEXT = re.compile(r'"((?:\\x[0-9a-f]{2})*)"(\.\.\.)?')
_FOLDER = re.compile(r"^(?:AT_FDCWD|(\d+))(?:<([^>]*)>)?(\(deleted\))?$")
MEMORY_ONLY = "-shm"


class NotModelled(Exception):
    """The trace holds something whose effect on the volume is not known."""


@dataclass(frozen=True, slots=True)
class Call:
    """One successful call; `made` is the path of the descriptor that it returned, "" without."""

    name: str
    words: list[str]
    result: int
    made: str

    def text(self, place: int) -> bytes:
        """Return a string argument, which must have been recorded whole."""
        found = _TEXT.fullmatch(self.words[place])
        if found is None or found[2]:
            raise NotModelled(f"{self.name}: a string was not recorded whole")
        return _bytes(found[1])

    def descriptor(self, place: int) -> tuple[int, str | None]:
        """Return number and path of a descriptor; None where its file has no name any more."""
        found = _FOLDER.fullmatch(self.words[place])
        if found is None:
            raise NotModelled(f"{self.name}: {self.words[place]!r} is no descriptor")
        path = _path(_bytes(found[2] or ""))
        gone = found[3] is not None or path.endswith("(deleted)")
        return int(found[1] or -1), None if gone else path


def calls(trace: str) -> Iterator[Call]:
    """Yield the successful calls in the order of their ends, whoever made them."""
    begun: dict[str, str] = {}
    for line in trace.splitlines():
        whole = line
        if (start := _BEGUN.fullmatch(line)) is not None:
            begun[start[1]] = start[2]
            continue
        if (end := _ENDED.fullmatch(line)) is not None and end[1] in begun:
            whole = f"{end[1]} {begun.pop(end[1])}{end[2]}"
        found = _LINE.match(whole)
        if found is not None and not found[4].startswith("-"):
            made = "" if found[6] else _path(_bytes(found[5] or ""))
            yield Call(found[2], found[3].split(", "), int(found[4], 0), made)


def operations(trace: str, root: str, base: Tree) -> list[Operation]:
    """Return what was done below `root`, which held `base` before; NotModelled names what cannot.

    Offsets of plain writes are followed from the opening of a file; a file opened for reading as
    well must be written at stated offsets.
    """
    reader = _Reader(root.rstrip("/"), Disk(base))
    for call in calls(trace):
        for operation in reader.read(call):
            reader.disk.perform(operation)
            reader.found.append(operation)
    return reader.found


@dataclass
class _Reader:
    root: str
    disk: Disk
    found: list[Operation] = field(default_factory=list)
    places: dict[tuple[int, str], int | None] = field(default_factory=dict)

    def read(self, call: Call) -> Iterator[Operation]:
        """Yield what one call did to the volume."""
        if call.name in REFUSED:
            self._refuse(call)
        elif call.name in {"open", "openat", "creat"}:
            yield from self._open(call)
        elif call.name in {"write", "pwrite64", "writev"}:
            yield from self._write(call)
        elif call.name in {"fsync", "fdatasync", "ftruncate"}:
            yield from self._by_descriptor(call)
        elif call.name == "lseek":
            number, path = call.descriptor(0)
            if (inside := self._inside(path)) is not None:
                self.places[number, inside] = call.result
        elif call.name in {"sync", "syncfs"}:
            yield Operation(Kind.SYNC, "")
        elif call.name == "mmap":
            self._map(call)
        else:
            yield from self._by_name(call)

    def _open(self, call: Call) -> Iterator[Operation]:
        path = self._inside(call.made)
        flags = set(" ".join(call.words[1:]).replace("|", " ").split())
        if path is None or "O_DIRECTORY" in flags:
            return
        written = bool(flags & {"O_WRONLY", "O_RDWR"}) or call.name == "creat"
        fresh = not self.disk.exists(path)
        if fresh and written:
            yield Operation(Kind.CREATE, path)
        elif written and ("O_TRUNC" in flags or call.name == "creat"):
            yield Operation(Kind.TRUNCATE, path)
        known = "O_RDWR" not in flags or fresh or "O_TRUNC" in flags
        append = "O_APPEND" in flags
        if append or known:
            self.places[call.result, path] = None if append else 0
        else:
            self.places.pop((call.result, path), None)

    def _write(self, call: Call) -> Iterator[Operation]:
        data = b"".join(_bytes(found[1]) for found in _TEXT.finditer(" ".join(call.words[1:])))
        number, descriptor = call.descriptor(0)
        path = self._inside(descriptor)
        if path is None and data.startswith(PROMISE):
            yield Operation(Kind.ANSWERED, data[len(PROMISE) :].decode().strip())
        if path is None or path.endswith(MEMORY_ONLY) or not call.result:
            return
        if len(data) < call.result:
            raise NotModelled(f"{call.name} {path}: the data was not recorded whole")
        data = data[: call.result]
        if call.name == "pwrite64":
            yield Operation(Kind.WRITE, path, offset=int(call.words[-1]), data=data)
            return
        if (number, path) not in self.places:
            raise NotModelled(f"{call.name} {path}: its place in the file is not known")
        offset = self.places[number, path]
        yield Operation(Kind.WRITE, path, offset=offset, data=data)
        if offset is not None:
            self.places[number, path] = offset + len(data)

    def _by_descriptor(self, call: Call) -> Iterator[Operation]:
        path = self._inside(call.descriptor(0)[1])
        if path is None or path.endswith(MEMORY_ONLY):
            return
        if call.name == "ftruncate":
            yield Operation(Kind.TRUNCATE, path, size_bytes=int(call.words[1]))
        else:
            yield Operation(Kind.FSYNC, path)

    def _by_name(self, call: Call) -> Iterator[Operation]:
        names = [name for name in self._names(call) if name is not None]
        if not names:
            return
        kind = NAMED.get(call.name)
        wanted = 2 if kind in {Kind.RENAME, Kind.LINK} else 1
        if kind is None or len(names) != wanted or "RENAME_EXCHANGE" in call.words[-1]:
            self._refuse(call)
        elif wanted == 2:
            yield Operation(kind, names[0], to=names[1])
        else:
            size = int(call.words[-1]) if kind is Kind.TRUNCATE else 0
            yield Operation(kind, names[0], size_bytes=size)

    def _names(self, call: Call) -> Iterator[str | None]:
        """Yield the paths that a call names, in order; None for one outside the volume."""
        folder = ""
        for place, word in enumerate(call.words):
            if _FOLDER.fullmatch(word) and not word.isdigit():
                folder = call.descriptor(place)[1] or ""
            elif word.startswith('"'):
                path = PurePosixPath(folder, _path(call.text(place)))
                if not path.is_absolute():
                    raise NotModelled(f"{call.name} {path}: it is not known below what")
                yield self._inside(str(path))

    def _map(self, call: Call) -> None:
        shared = "PROT_WRITE" in call.words[2] and "MAP_SHARED" in call.words[3]
        path = self._inside(call.descriptor(4)[1]) if shared else None
        if path is not None and not path.endswith(MEMORY_ONLY):
            self._refuse(call)

    def _refuse(self, call: Call) -> None:
        raw = " ".join(call.words)
        told = _TEXT.sub(lambda found: _path(_bytes(found[1])), raw)
        if self.root in _path(_bytes(raw)) or self.root in told:
            raise NotModelled(f"{call.name} on the volume is not modelled")

    def _inside(self, path: str | None) -> str | None:
        """Return a path below the root, None for one elsewhere."""
        if path is None:
            return None
        if path == self.root:
            return ""
        prefix = f"{self.root}/"
        return path.removeprefix(prefix) if path.startswith(prefix) else None


NAMED: Mapping[str, Kind] = {
    "mkdir": Kind.MKDIR,
    "mkdirat": Kind.MKDIR,
    "rename": Kind.RENAME,
    "renameat": Kind.RENAME,
    "renameat2": Kind.RENAME,
    "link": Kind.LINK,
    "linkat": Kind.LINK,
    "unlink": Kind.UNLINK,
    "unlinkat": Kind.UNLINK,
    "rmdir": Kind.UNLINK,
    "truncate": Kind.TRUNCATE,
}


def _bytes(text: str) -> bytes:
    """Return a string in which strace wrote every byte as \\xNN; anything else stays."""
    plain = text.encode("latin-1", "replace")
    return re.sub(rb"\\x([0-9a-f]{2})", lambda found: bytes([int(found[1], 16)]), plain)


def _path(raw: bytes) -> str:
    return raw.decode("utf-8", "surrogateescape")
