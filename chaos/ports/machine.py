"""The machine as a whole: before a run there is nothing else, and after its death too."""

from collections.abc import Mapping
from typing import Protocol

from chaos.model import Audit, Undo
from chaos.ports.images import DiskImages
from chaos.ports.syscalls import Syscalls
from chaos.ports.values import RunSpec
from chaos.ports.world import World


class Machine(Protocol):
    """The machine as a whole: before a run there is nothing else, and after its death too."""

    def images(self, planted: str | None) -> Mapping[str, str]:
        """Return image name -> digest of all that a run needs.

        Raise CannotRun with the remedy: engine, image missing, disk nearly full.
        """
        ...

    def world(self, spec: RunSpec) -> World:
        """Return the adapters for one run; starts nothing."""
        ...

    def disk_images(self, run_id: str, planted: str | None) -> DiskImages:
        """Return what records and judges power losses, with these labels; starts nothing."""
        ...

    def syscalls(self, run_id: str, planted: str | None) -> Syscalls:
        """Return what traces saves and disturbs them, with these labels; starts nothing."""
        ...

    def runs(self) -> tuple[str, ...]:
        """Return the run ids found on labelled containers, networks and volumes."""
        ...

    def undo(self, undo: Undo) -> None:
        """Carry out one undo and verify it; a missing object is fine.

        `stack_down` (no args) removes every container, network and volume of the run; the other
        actions belong to the faults that promise them.
        """
        ...

    def audit(self, run_id: str) -> Audit:
        """Return what is left of a run."""
        ...
