"""The checkpoint volume of one run, reached through the helper container only."""

from pydantic import BaseModel

from chaos.model import JsonMap, Target
from chaos.ports import Checkpoint, CheckpointTree, Takeover, WriteWindow
from chaos.targets.helper import READ_ONLY, Helper

WATCH_SLACK_S = 10.0


class StepEntry(BaseModel):
    """A step directory."""

    step: int
    state: str
    attempt_id: str | None = None
    manifest_id: str | None = None
    reason: str | None = None


class StagedEntry(BaseModel):
    """A save in progress, or what a dead writer left."""

    attempt_id: str
    step: int
    parts: dict[str, int]
    manifest: bool


class LineageEntry(BaseModel):
    """A takeover."""

    attempt_id: str
    manifest_id: str | None
    step: int | None


class TreeAnswer(BaseModel):
    """What inside/tree.py answers."""

    steps: list[StepEntry]
    staging: list[StagedEntry]
    lineage: list[LineageEntry]


class WindowEntry(BaseModel):
    """A write window."""

    step: int
    seen_ns: int


class WatchAnswer(BaseModel):
    """What inside/watch.py answers."""

    window: WindowEntry | None


class VolumeFiles:
    """Checkpoint trees as they lie on the volume."""

    def __init__(self, helper: Helper) -> None:
        self._helper = helper

    def committed(self, job_id: str, task_id: str) -> tuple[Checkpoint, ...]:
        """Return the steps that have a manifest, by step, without hashing."""
        answer = self._tree(job_id, task_id, hashed=False)
        found = (
            Checkpoint(step.step, "committed", step.attempt_id, step.manifest_id)
            for step in answer.steps
            if step.state != "torn"
        )
        return tuple(sorted(found, key=lambda checkpoint: checkpoint.step))

    def tree(self, job_id: str, task_id: str) -> CheckpointTree:
        """Return the tree of a task, every step verified by hash."""
        answer = self._tree(job_id, task_id, hashed=True)
        steps = (Checkpoint(**step.model_dump()) for step in answer.steps)
        lineage = (Takeover(**link.model_dump()) for link in answer.lineage)
        return CheckpointTree(tuple(steps), tuple(lineage))

    def staged_parts(self, job_id: str, task_id: str, attempt_id: str, step: int) -> JsonMap:
        """Return {"parts": name -> size, "manifest": bool, "committed": bool} of one save."""
        answer = self._tree(job_id, task_id, hashed=False)
        key = (attempt_id, step)
        staged = next((s for s in answer.staging if (s.attempt_id, s.step) == key), None)
        return {
            "parts": dict(staged.parts) if staged else {},
            "manifest": staged is not None and staged.manifest,
            "committed": any((s.attempt_id, s.step) == key for s in answer.steps),
        }

    def wait_write_window(
        self, target: Target, min_step: int, timeout_s: float
    ) -> WriteWindow | None:
        """Return at once when the target itself saves a step >= `min_step`: parts, no manifest."""
        request: JsonMap = {
            "root": _root(READ_ONLY, str(target.job_id), str(target.task_id)),
            "attempt_id": target.lease_id,
            "min_step": min_step,
            "timeout_s": timeout_s,
        }
        wait_s = timeout_s + WATCH_SLACK_S
        window = self._helper.run("watch", request, WatchAnswer, wait_s).window
        return WriteWindow(**window.model_dump()) if window else None

    def _tree(self, job_id: str, task_id: str, *, hashed: bool) -> TreeAnswer:
        request: JsonMap = {"root": _root(READ_ONLY, job_id, task_id), "hash": hashed}
        return self._helper.run("tree", request, TreeAnswer)


def _root(mount: str, job_id: str, task_id: str) -> str:
    return f"{mount}/{job_id}/{task_id}"
