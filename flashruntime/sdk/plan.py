"""A run as it was asked for: what, where, how many at once, within which limits."""

import shutil
from dataclasses import dataclass, field
from pathlib import Path

from flashruntime.launch.source import RUN_FILES, Tree
from flashruntime.sdk.workload import CommandWorkload

SNAPSHOT_PREFIX = ".source-"
OWN_NAMES = ("local", "local-[0-9]*", ".control", ".run.json.tmp", f"{SNAPSHOT_PREFIX}*")


@dataclass(frozen=True, slots=True)
class Limits:
    """How often and how long a run may try; `grace_s` lies between SIGTERM and SIGKILL."""

    max_restarts: int = 0
    timeout_s: float | None = None
    grace_s: float = 10.0


@dataclass(frozen=True, slots=True)
class Plan:
    """A submission, checked; `parallel` is the number of slots, `cores` what they share."""

    job_id: str
    output_dir: Path
    workload: CommandWorkload
    limits: Limits
    parallel: int
    cores: int
    _taken: list[Tree] = field(default_factory=list)

    @property
    def has_limits(self) -> bool:
        """Whether an attempt may be found to hang."""
        return self.limits.timeout_s is not None or self.workload.no_progress_s is not None

    def task_dir(self, task: int) -> Path:
        """The directory that all attempts of a task share."""
        name = "local" if self.workload.task_params is None else f"local-{task:03d}"
        return self.output_dir / name

    def source(self) -> Tree:
        """The source for the next attempt: a snapshot, where there may be several attempts."""
        if not self._taken:
            source = self.workload.source
            root, left_out = source.path.absolute(), source.exclude
            if root.resolve() == self.output_dir.resolve():
                left_out = (*left_out, *RUN_FILES, *OWN_NAMES)
            tree = Tree(root, left_out, (self.output_dir,))
            if len(self.workload.tasks) > 1 or self.limits.max_restarts:
                # What an attempt before could not finish, for a full disk perhaps.
                shutil.rmtree(self._snapshot, ignore_errors=True)
                tree.copy(self._snapshot)
                tree = Tree(self._snapshot)
            self._taken.append(tree)
        return self._taken[0]

    @property
    def _snapshot(self) -> Path:
        return self.output_dir / f"{SNAPSHOT_PREFIX}{self.job_id}"

    def clear(self) -> None:
        """Remove snapshots, also those that a killed submitter left."""
        for path in self.output_dir.glob(f"{SNAPSHOT_PREFIX}*"):
            shutil.rmtree(path, ignore_errors=True)
