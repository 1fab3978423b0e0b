"""A crash that the job's own code makes: the payload is armed, nothing is done from outside."""

from dataclasses import dataclass

from chaos.history import integer, mapping, text
from chaos.model import JsonMap, Landed, NoTarget, Observation, Receipt
from chaos.ports import Scene

COMPARED = ("ended_by", "exit_code", "signal", "error_type")


@dataclass(frozen=True, slots=True)
class AppCrash:
    """Parameters `ended_by`, `exit_code`, `signal`, `error_type`: those given must be seen.

    Landed where the worker that waited for the process reports such an end of the first attempt
    and, with `mode`, the file that the payload wrote on the volume before it crashed says the same.
    """

    kind: str = "app_crash"

    def undo(self, scene: Scene) -> tuple[tuple[str, JsonMap], ...]:
        """Return nothing: nothing outside of the job is touched."""
        return ()

    def fire(self, scene: Scene) -> JsonMap:
        """Wait until the task's first attempt has ended otherwise than well."""
        target = scene.target()
        if target.task_id is None:
            raise NoTarget(f"{target.symbol} is no task")
        task_id = target.task_id
        scene.wait(lambda seen: _failure(seen, task_id) is not None, scene.remaining_s())
        return {"task_id": task_id}

    def receipt(self, scene: Scene, fired: JsonMap) -> Receipt:
        """Compare how it ended, as its launcher saw it, with what it was armed for."""
        failure = _failure(scene.observation(), str(fired["task_id"]))
        if failure is None:
            return Receipt(Landed.MISSED, {**fired, "reason": "no attempt failed in time"})
        seen = mapping(mapping(failure.get("data")).get("evidence"))
        params, lease_id = scene.action.params, text(failure.get("lease_id"))
        wrong = [name for name in COMPARED if name in params and seen.get(name) != params[name]]
        mode = params.get("mode")
        written = scene.world.processes.evidence(str(lease_id)) if mode is not None else None
        if mode is not None and (written or {}).get("mode") != mode:
            wrong.append("mode")
        evidence: JsonMap = {
            **fired,
            "lease_id": lease_id,
            "step": integer(seen.get("step")),
            "seen": {name: seen.get(name) for name in COMPARED},
            "written": dict(written) if written is not None else None,
            "differs": [*wrong],
        }
        landed = Landed.MISSED if wrong else Landed.LANDED
        return Receipt(landed, evidence, took_effect_ns=integer(failure.get("mono_ns")))


def _failure(seen: Observation, task_id: str) -> JsonMap | None:
    failures = seen.events_of(task_id, "TASK_ATTEMPT_FAILED")
    return failures[0] if failures else None


FAULT = AppCrash()
