"""The checkpoint volume of one run, reached through the helper container only."""

import hashlib

from pydantic import BaseModel

from chaos.model import CannotRun, Checkpoint, CheckpointTree, JsonMap, Takeover, Target
from chaos.ports import Flip, WriteWindow
from chaos.targets.helper import READ_ONLY, WRITABLE, Helper

WATCH_SLACK_S = 10.0
FRACTIONS = 1 << 16


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


class FlipAnswer(BaseModel):
    """What inside/flip.py answers."""

    at_ns: int
    step: int
    manifest_id: str
    attempt_id: str
    path: str
    before: str
    after: str


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

    def flip_newest(self, job_id: str, task_id: str, seed: int) -> tuple[int, Flip]:
        """Flip one bit of a part of the newest committed checkpoint; return its step and file."""
        chosen = hashlib.sha256(str(seed).encode()).digest()
        request: JsonMap = {
            "root": _root(WRITABLE, job_id, task_id),
            "part": int.from_bytes(chosen[:4], "big"),
            "offset": int.from_bytes(chosen[4:6], "big") / FRACTIONS,
            "bit": chosen[6] % 8,
        }
        answer = self._helper.run("flip", request, FlipAnswer)
        if answer.before == answer.after:
            raise CannotRun(f"the bit flipped in {answer.path} is not seen when it is read back")
        return answer.step, Flip(
            manifest_id=answer.manifest_id,
            attempt_id=answer.attempt_id,
            path=answer.path,
            before_sha256=answer.before,
            after_sha256=answer.after,
            at_ns=answer.at_ns,
        )

    def _tree(self, job_id: str, task_id: str, *, hashed: bool) -> TreeAnswer:
        request: JsonMap = {"root": _root(READ_ONLY, job_id, task_id), "hash": hashed}
        return self._helper.run("tree", request, TreeAnswer)


def _root(mount: str, job_id: str, task_id: str) -> str:
    return f"{mount}/{job_id}/{task_id}"
