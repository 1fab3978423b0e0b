"""In which phase of a task's life a fault hit, told by the saved history alone."""

from typing import Any

import pytest

from chaos.figures.phases import Phase, phase_of, phases_of
from chaos.history import History, Record

SECOND = 1_000_000_000
TARGET = "holder of main"


class Told:
    """A history of the job main, written second by second."""

    def __init__(self, target: str = TARGET, **params: Any) -> None:
        self.records: list[Record] = []
        self.at_s = 0.0
        self._events = 0
        trigger = {"role": "main"}
        action = {"fault_id": "f", "target": target, "params": params, "trigger": trigger}
        self.add("plan", schedule=[action])
        self.add("job_submitted", role="main", job_id="job-1")

    def add(self, kind: str, at_s: float | None = None, **data: Any) -> "Told":
        self.at_s += 1
        at_ns = int((self.at_s if at_s is None else at_s) * SECOND)
        self.records.append(Record(len(self.records), at_ns, "boot", "2026", "test", kind, data))
        return self

    def event(self, kind: str, lease: str = "lease-1", at_s: float | None = None) -> "Told":
        self._events += 1
        at_s = self.at_s + 1 if at_s is None else at_s
        ids = {"job_id": "job-1", "task_id": "task-1", "lease_id": lease}
        told = {"id": self._events, "type": kind, "boot_id": "boot", "data": {}, **ids}
        return self.add("event", mono_ns=int(at_s * SECOND), **told)

    def step(self, step: int | None, lease: str = "lease-1") -> "Told":
        task = {"task_id": "task-1", "lease_id": lease, "step": step}
        return self.add("task", role="main", job_id="job-1", task=task)

    def claimed(self) -> "Told":
        return self.event("LEASE_CLAIMED").step(None)

    def lost(self) -> "Told":
        return self.claimed().step(5).event("LEASE_EXPIRED")

    def hit(self, **evidence: Any) -> "Told":
        self.add("fault_firing", fault_id="f")
        receipt: dict[str, Any] = {"fault_id": "f", "landed": "landed", "evidence": evidence}
        return self.add("fault_receipt", **receipt)

    def ends(self, steps: int) -> "Told":
        tasks = [{"task_id": "task-1", "state": "COMPLETED"}]
        return self.add("job_final", role="main", tasks=tasks, metrics={"steps": steps})

    @property
    def phases(self) -> tuple[Phase, ...]:
        return phases_of(History(self.records), "f")


@pytest.mark.parametrize(
    ("told", "phase"),
    [
        (Told().hit(), Phase.IDLE),
        (Told().claimed().hit(), Phase.STARTING),
        (Told().claimed().step(3).hit(), Phase.STEPPING),
        (Told().lost().hit(), Phase.LOST),
        (Told().lost().event("LEASE_CLAIMED", "lease-2").hit(), Phase.RESUMING),
        (Told().lost().step(6).hit(), Phase.LOST),
        (Told().claimed().step(9).hit().ends(9), Phase.FINISHING),
        (Told().claimed().step(9).event("TASK_COMMIT_ACCEPTED").hit(), Phase.DONE),
        (Told().claimed().step(3), Phase.NEVER),
    ],
)
def test_the_phase_follows_from_what_was_told_before_the_fault(told: Told, phase: Phase) -> None:
    assert told.phases == (phase,)


@pytest.mark.parametrize(
    ("manifest", "phase"),
    [(False, Phase.WRITING_PARTS), (True, Phase.COMMITTING_MANIFEST)],
)
def test_an_open_save_is_known_by_what_the_receipt_found(manifest: bool, phase: Phase) -> None:
    left = {"parts": {"a": 1}, "manifest": manifest, "committed": False}
    assert Told().claimed().step(3).hit(window_seen_ns=4, left=left).phases == (phase,)


@pytest.mark.parametrize(
    ("call", "phase"),
    [
        ("claim", Phase.CLAIMING),
        ("complete", Phase.COMPLETING),
        ("submit", Phase.SUBMITTING),
    ],
)
def test_a_call_that_was_cut_names_its_phase(call: str, phase: Phase) -> None:
    assert Told(call=call).claimed().hit().phases == (phase,)


def test_a_fault_that_is_held_covers_each_phase_until_it_is_off() -> None:
    told = Told().claimed().step(3)
    on, off = int((told.at_s + 1) * SECOND), int((told.at_s + 3.5) * SECOND)
    told.hit(on_ns=on, off_ns=off).event("LEASE_EXPIRED").event("LEASE_CLAIMED", "lease-2")
    assert told.phases == (Phase.STEPPING, Phase.LOST)
    assert phase_of(History(told.records), "f") is Phase.STEPPING


def test_what_the_fault_itself_brought_about_is_not_its_phase() -> None:
    told = Told().claimed().step(3)
    told.event("LEASE_EXPIRED", at_s=told.at_s + 2).hit()
    told.records[-1].data["took_effect_ns"] = int(told.records[-3].data["mono_ns"])  # type: ignore[index]
    assert told.phases == (Phase.STEPPING,)


def test_a_coordinator_that_another_fault_took_down_is_a_phase_of_its_own() -> None:
    told = Told().claimed().step(3)
    down = {"fault_id": "g", "landed": "landed", "target": "coordinator"}
    told.add("fault_receipt", evidence={"exit_code": 137}, **down).hit()
    ready = int((told.at_s + 1) * SECOND)
    assert told.phases == (Phase.STEPPING,), "nothing says when it was ready again"
    told.add("said", coordinator=[{"event": "coordinator_ready", "mono_ns": ready}])
    assert told.phases == (Phase.COORDINATOR_DOWN,)


@pytest.mark.parametrize("target", ["coordinator", "toxiproxy", "target of f"])
def test_a_fault_without_a_task_of_its_own_is_told_by_its_trigger(target: str) -> None:
    told = Told(target).claimed().step(3).hit()
    expected = Phase.IDLE if target.startswith("target") else Phase.STEPPING
    assert told.phases == (expected,)
