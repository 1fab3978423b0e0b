"""Saves recorded with every system call, and volumes judged after a power loss."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from chaos.powerloss.operations import Tree
from chaos.powerloss.rules import Judged


@dataclass(frozen=True, slots=True)
class Recording:
    """One save as it was performed below `root`: the volume before and after it, and its trace."""

    root: str
    before: Tree
    after: Tree
    trace: str


@dataclass(frozen=True, slots=True)
class Mounted:
    """A volume that was mounted from a disk image: the digest of the image, and the judgement."""

    image_sha256: str
    judged: Judged


class DiskImages(Protocol):
    """Records and judges with the real runtime; `what` names a pair of recorder and judge.

    Everything it makes carries the label of the run and is gone with `stack_down`.
    """

    def record(self, what: str) -> Recording:
        """Record one save; CannotRun where it does not end well."""
        ...

    def judge(self, what: str, bundle: bytes) -> tuple[Judged, ...]:
        """Judge each state of a bundle on a volume of its own, in order."""
        ...

    def mount(self, what: str, volumes: Sequence[bytes]) -> tuple[Mounted, ...]:
        """Judge each volume (a tar archive of `volume/`) on a file system of its own."""
        ...
