"""Other bytes are uploaded under the key of an accepted output, as a confused client would do.

Aimed at "artifacts of ROLE". Whether the coordinator keeps what it accepted is for judges to say.
"""

import time
from dataclasses import asdict, dataclass

from chaos.harm import artifacts
from chaos.history import integer
from chaos.model import JsonMap, Landed, Receipt
from chaos.ports import Scene

OTHER = bytes(range(256)) * 64


@dataclass(frozen=True, slots=True)
class Overwrite:
    """Parameter `choice`, the seeded number that picks the output.

    Landed where the upload was answered, whatever the answer, and a download before it gave the
    accepted bytes. There is nothing to undo: what a correct coordinator keeps is as it was.
    """

    kind: str = "overwrite"

    def undo(self, scene: Scene) -> tuple[tuple[str, JsonMap], ...]:
        """Promise nothing; NoTarget where no output was accepted."""
        artifacts.accepted(scene)
        return ()

    def fire(self, scene: Scene) -> JsonMap:
        """Upload, and download before and after."""
        target, runtime = scene.target(), scene.world.runtime
        outputs = sorted((key, digest) for digest, key in artifacts.accepted(scene).items())
        choice = integer(scene.action.params.get("choice")) or 0
        key, accepted_sha256 = outputs[choice % len(outputs)]
        before, at_ns = runtime.fetch(key), time.monotonic_ns()
        answer = runtime.store(key, OTHER)
        return {
            "job_id": target.job_id,
            "task_id": target.task_id,
            "key": key,
            "accepted_sha256": accepted_sha256,
            "at_ns": at_ns,
            "before_sha256": before,
            "answer": asdict(answer),
            "after_sha256": runtime.fetch(key),
        }

    def receipt(self, scene: Scene, fired: JsonMap) -> Receipt:
        """Look at the answer."""
        del scene
        answer = fired["answer"]
        answered = isinstance(answer, dict) and answer["status"] is not None
        was_there = fired["before_sha256"] == fired["accepted_sha256"]
        landed = Landed.LANDED if answered and was_there else Landed.MISSED
        return Receipt(landed, fired, took_effect_ns=integer(fired["at_ns"]))


FAULT = Overwrite()
