"""What the job's own code does to its worker without ending: the payload is armed to do it.

Modes of the payload: the interpreter's lock held (`hold_gil`), many children (`children`), output
without a line's end (`flood`).
"""

from dataclasses import dataclass

from chaos.history import integer, mapping, text
from chaos.model import JsonMap, Landed, NoTarget, Observation, Receipt
from chaos.ports import Scene

ENDS = ("TASK_COMMIT_ACCEPTED", "TASK_ATTEMPT_FAILED", "LEASE_EXPIRED")


@dataclass(frozen=True, slots=True)
class AppStrain:
    """Parameters `mode` and `at_least`: how much of it, in the unit of the payload's file.

    Landed where that file says so, on the volume, for the first attempt, and the coordinator's
    events tell of that attempt's end.
    """

    kind: str = "app_strain"

    def undo(self, scene: Scene) -> tuple[tuple[str, JsonMap], ...]:
        """Return nothing: nothing outside of the job is touched."""
        return ()

    def fire(self, scene: Scene) -> JsonMap:
        """Wait until the task's first attempt has ended, in whatever way."""
        target = scene.target()
        if target.task_id is None:
            raise NoTarget(f"{target.symbol} is no task")
        task_id = target.task_id
        scene.wait(lambda seen: _end(seen, task_id) is not None, scene.remaining_s())
        return {"task_id": task_id}

    def receipt(self, scene: Scene, fired: JsonMap) -> Receipt:
        """Read what the attempt wrote down of itself."""
        end = _end(scene.observation(), str(fired["task_id"]))
        if end is None:
            return Receipt(Landed.MISSED, {**fired, "reason": "its first attempt did not end"})
        lease_id, params = text(end.get("lease_id")), scene.action.params
        written = mapping(dict(scene.world.processes.evidence(str(lease_id)) or {}))
        amount = written.get("amount")
        at_least = params.get("at_least")
        enough = (
            isinstance(amount, int | float)
            and isinstance(at_least, int | float)
            and amount >= at_least
        )
        landed = written.get("mode") == params.get("mode") and enough
        evidence: JsonMap = {
            **fired,
            "lease_id": lease_id,
            "ended_by": text(end.get("type")),
            "written": written,
        }
        return Receipt(
            Landed.LANDED if landed else Landed.MISSED,
            evidence,
            took_effect_ns=integer(written.get("began_ns")),
        )


def _end(seen: Observation, task_id: str) -> JsonMap | None:
    """Return the event that ends the first attempt."""
    claims = seen.events_of(task_id, "LEASE_CLAIMED")
    first = claims[0].get("lease_id") if claims else None
    ends = seen.events_of(task_id, *ENDS)
    return next((event for event in ends if event.get("lease_id") == first), None)


FAULT = AppStrain()
