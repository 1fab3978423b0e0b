"""Made-up histories of a system that does everything right, for the judges' own tests.

A small simulator: jobs of one task, claimed and worked on at the same time; holders are killed,
cut off, crash, or are only late; the newest checkpoint rots; the coordinator restarts.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import StrEnum
from random import Random

from chaos.history import Record, digest, integer
from chaos.model import JsonMap, JsonValue
from chaos.schedule import expects

MS = 1_000_000
STEPS, EVERY, LEASE_S = 40, 10, 3.0
BOOT = "boot"
SCRIPT = "job.py"
REFERENCE = "reference"
LOST_AS = "retry_task"
Json = dict[str, JsonValue]


class Fate(StrEnum):
    """How an attempt ends, where it is not the one that ends well."""

    KILLED = "killed"
    ROTTEN = "killed with two checkpoints, of which the newest rots"
    ZOMBIE = "cut off, and comes back too late"
    CRASHED = "crashes by itself"
    LATE = "its lease lapses and is renewed before anybody claims"


@dataclass(slots=True)
class Task:
    """One task of the simulation and all that happened to it."""

    role: str
    fates: list[Fate]
    number: int = 0
    ended: int = 0
    chain: list[Json] = field(default_factory=list)
    seen: list[Json] = field(default_factory=list)
    lineage: list[JsonValue] = field(default_factory=list)
    logs: list[str] = field(default_factory=list)

    @property
    def lease_id(self) -> str:
        """The newest lease."""
        return f"{self.role}-lease-{self.number}"


class Story:
    """Simulates `jobs`, role -> how each attempt but the last one ends; `records` is the history.

    `restarts` of the coordinator fall between any two things that happen.
    """

    def __init__(self, chance: Random, jobs: dict[str, list[Fate]], restarts: int = 0) -> None:
        self.records: list[Record] = []
        self.now_ns = 1_000 * MS
        self._chance = chance
        self._events: list[Json] = []
        self._said: dict[str, list[JsonValue]] = {"coordinator": [], "worker-1": []}
        self._tasks = [Task(REFERENCE, []), *(Task(role, fates) for role, fates in jobs.items())]
        self._begin()
        self._work(restarts)
        self._end()

    def add(self, kind: str, /, **data: JsonValue) -> None:
        """Write a record."""
        self.now_ns += self._chance.randint(1, 40) * MS
        self.records.append(
            Record(len(self.records), self.now_ns, BOOT, "2026", "story", kind, data)
        )

    def event(self, kind: str, task: Task, lease: int | None = None, **data: JsonValue) -> None:
        """Write an event of the coordinator; `lease` is the number of an attempt."""
        self.now_ns += self._chance.randint(1, 40) * MS
        number = task.number if lease is None else lease
        told: JsonMap = {"attempt_number": number, "node_id": "worker-1", **data}
        whole = kind.startswith("JOB_")
        event: Json = {
            "id": len(self._events) + 1,
            "type": kind,
            "mono_ns": self.now_ns,
            "boot_id": BOOT,
            "job_id": f"job-{task.role}",
            "task_id": None if whole else f"task-{task.role}",
            "lease_id": f"{task.role}-lease-{number}" if number and not whole else None,
            "data": dict(told),
        }
        self._events.append(event)
        self.add("event", **event)

    def _begin(self) -> None:
        self.add("run", run_id="run-1", schema=2)
        schedule = [
            _action(f"{task.role}-{number}", fate)
            for task in self._tasks
            for number, fate in enumerate(task.fates, start=1)
            if fate is not Fate.LATE
        ]
        job: JsonValue = {"files": {SCRIPT: "digest"}, "command": ["python3", SCRIPT]}
        self.add(
            "plan",
            experiment="story",
            seed=1,
            workers=2,
            schedule=list(schedule),
            jobs={task.role: job for task in self._tasks},
            invariants=[],
        )
        self._say("coordinator", event="coordinator_ready")
        for task in self._tasks:
            like = None if task.role == REFERENCE else REFERENCE
            job_id = f"job-{task.role}"
            self.add("job_submitted", role=task.role, job_id=job_id, lease_s=LEASE_S, like=like)
            self.event("TASK_CREATED", task)

    def _say(self, log: str, **line: JsonValue) -> None:
        self._said[log].append({"mono_ns": self.now_ns + MS, **line})

    def _work(self, restarts: int) -> None:
        """Let one task after the other do its next thing, in an order left to chance."""
        lives = [self._life(task) for task in self._tasks]
        while lives:
            life = self._chance.choice(lives)
            if not next(life, False):
                lives.remove(life)
            if restarts and self._chance.random() < 0.1:
                self._say("coordinator", event="coordinator_ready")
                restarts -= 1

    def _life(self, task: Task) -> Iterator[bool]:
        """Go through the attempts of a task; each thing that happens is a step of the iterator."""
        for fate in [*task.fates, None]:
            task.ended += 1
            yield from self._attempt(task, fate)

    def _attempt(self, task: Task, fate: Fate | None) -> Iterator[bool]:
        """Claim, take over, work and save; then end as fate has it."""
        start = self._claim(task)
        yield True
        saved = self._chance.randint(2 if fate is Fate.ROTTEN else 0, 4) if fate else 4
        for step in range(start + EVERY, saved * EVERY + 1, EVERY):
            self._told(task, step - 1)
            yield True
            self._save(task, task.number, step)
            yield True
        if fate is None:
            self._complete(task, start)
        elif fate is Fate.LATE:
            self._lapse(task, "deadline_passed")
            self.event("LEASE_RENEWED", task, revived=True)
            yield True
            self._fail(task)
        else:
            self._lose(task, fate)

    def _claim(self, task: Task) -> int:
        task.number += 1
        self.event("LEASE_CLAIMED", task, lease_s=LEASE_S)
        self._answered(task, "lease_claimed", attempt=task.number)
        newest = task.chain[-1] if task.chain else None
        link: Json = {"attempt_id": task.lease_id, "manifest_id": None, "step": None}
        if newest is not None:
            link |= {"manifest_id": newest["manifest_id"], "step": newest["step"]}
            task.logs.append(_line("resumed", newest))
        task.lineage.append(link)
        start = integer(newest["step"]) or 0 if newest else 0
        self._told(task, start)
        return start

    def _answered(self, task: Task, event: str, **more: JsonValue) -> None:
        ids = {"lease_id": task.lease_id, "task_id": f"task-{task.role}"}
        self._say("worker-1", event=event, **ids, **more)

    def _told(self, task: Task, step: int) -> None:
        view: JsonValue = {
            "task_id": f"task-{task.role}",
            "lease_id": task.lease_id,
            "state": "LEASED",
            "step": step,
        }
        self.add("task", role=task.role, job_id=f"job-{task.role}", task=view)

    def _save(self, task: Task, number: int, step: int) -> None:
        lease_id = f"{task.role}-lease-{number}"
        made: Json = {
            "step": step,
            "state": "committed",
            "attempt_id": lease_id,
            "manifest_id": f"{lease_id}-{step}",
        }
        task.seen.append(made)
        if number == task.number:
            task.chain.append(made)
        self.add("committed", role=task.role, steps=list(task.seen))

    def _lapse(self, task: Task, reason: str, lease: int | None = None) -> None:
        self.event("LEASE_EXPIRED", task, lease, reason=reason)
        self.event("TASK_REQUEUED", task, lease, reason=reason, backoff_s=0.0)

    def _fail(self, task: Task) -> None:
        self.event("TASK_ATTEMPT_FAILED", task, evidence={"ended_by": "exit", "exit_code": 3})
        self._decided(task, "worker_crash")
        self.event("TASK_REQUEUED", task, reason="attempt_failed", backoff_s=0.01)
        self._answered(task, "attempt_failed")

    def _decided(self, task: Task, failure: str) -> None:
        self.event("FAILURE_CLASSIFIED", task, failure_class=failure)
        self.event("RECOVERY_ACTION_SELECTED", task, failure_class=failure, action=LOST_AS)

    def _lose(self, task: Task, fate: Fate) -> None:
        """Take the holder away, and let the coordinator notice."""
        about: Json = {"fault_id": f"{task.role}-{task.ended}", "kind": fate.name.lower()}
        evidence: Json = {"lease_id": task.lease_id, "task_id": f"task-{task.role}"}
        self.add("fault_firing", **about)
        if fate in {Fate.KILLED, Fate.ROTTEN}:
            evidence["exit_code"] = 137
        if fate is Fate.ROTTEN and len(task.chain) > 1:
            evidence |= self._rot(task)
        if fate is Fate.CRASHED:
            self._fail(task)
        self.add(
            "fault_receipt",
            **about,
            landed="landed",
            evidence=evidence,
            took_effect_ns=self.now_ns,
            lost_lease_id=None if fate is Fate.CRASHED else task.lease_id,
        )
        if "corrupted" in evidence:
            self._snapshot(task, "disturbed")
        if fate is not Fate.CRASHED:
            died = fate is not Fate.ZOMBIE
            self._lapse(task, "session_ended" if died else "deadline_passed")
            self._decided(task, "node_loss")
        if fate is Fate.ZOMBIE:
            self._haunt(task)

    def _rot(self, task: Task) -> Json:
        rotten = task.chain.pop()
        rotten["state"] = "corrupt"
        step, manifest = rotten["step"], rotten["manifest_id"]
        task.logs.append(_line("checkpoint_rejected", rotten))
        damage: list[JsonValue] = [{"step": step, "manifest_id": manifest}]
        return {"step": step, "before_sha256": "x", "after_sha256": "y", "corrupted": damage}

    def _haunt(self, task: Task) -> None:
        """Let the next attempt claim, and the one before it come back: it changes nothing."""
        before = task.number
        self._claim(task)
        self.event("LEASE_REFUSED", task, before, call="heartbeat")
        self._save(task, before, STEPS * 10)
        self.event("TASK_COMMIT_REJECTED", task, before, call="complete")
        lease: Json = {"lease_id": f"{task.role}-lease-{before}", "task_id": f"task-{task.role}"}
        self._say("worker-1", event="attempt_refused", **lease)
        self._fail(task)

    def _snapshot(self, task: Task, when: str) -> None:
        found: list[JsonValue] = [
            {**each, "state": "valid" if each["state"] == "committed" else each["state"]}
            for each in task.seen
        ]
        lineage = list(task.lineage)
        self.add("checkpoints", role=task.role, when=when, checkpoints=found, lineage=lineage)

    def _complete(self, task: Task, start: int) -> None:
        output: JsonValue = {"key": f"{task.role}/metrics.json", "sha256": "d" * 64}
        self.event("TASK_COMMIT_ACCEPTED", task, outputs=[output], step=STEPS)
        self.event("JOB_SUCCEEDED", task)
        self._answered(task, "attempt_accepted")
        metrics: JsonValue = {
            "weights_sha256": "w",
            "sample_chain": "c",
            "samples_seen": 10 * STEPS,
            "steps": STEPS,
            "resumed_from": start or None,
            "executed_steps_this_attempt": STEPS - start,
        }
        ended: JsonValue = {
            "job_id": f"job-{task.role}",
            "task_id": f"task-{task.role}",
            "state": "COMPLETED",
            "lease_id": task.lease_id,
            "resumed_from": start or None,
        }
        self.add(
            "job_final",
            role=task.role,
            job={"state": "SUCCEEDED"},
            tasks=[ended],
            artifacts=[{"key": f"{task.role}/metrics.json", "bytes_sha256": "d" * 64}],
            metrics=metrics,
            logs="\n".join(task.logs),
        )

    def _end(self) -> None:
        self.add("collected", silent=[])
        for task in self._tasks:
            self._snapshot(task, "end")
        self.add("events_again", digests={str(e["id"]): digest(e) for e in self._events})
        one: dict[str, JsonValue] = {"service": "worker-1", "commands": ["flashruntime work"]}
        self.add("processes", containers=[one, {"service": "worker-2", "commands": []}])
        self.add("healed", failures=[], unsteady=[], checked=True)
        left: dict[str, JsonValue] = dict.fromkeys(
            ("containers", "networks", "volumes", "toxics", "paused")
        )
        self.add("logs", coordinator={"lines": 9, "numbered": 8, "processes": 1, "gaps": []})
        self.add("said", **{log: list(lines) for log, lines in self._said.items()})
        self.add("audit", kept=False, **{name: [] for name in left})
        self.add("end", end="completed", reason=None)


def _action(fault_id: str, fate: Fate) -> JsonValue:
    classes = ("worker_crash",) if fate is Fate.CRASHED else ("node_loss",)
    params: JsonValue = expects(LOST_AS, *classes)
    return {"fault_id": fault_id, "kind": fate.name.lower(), "target": "main", "params": params}


def _line(event: str, found: Json) -> str:
    step, manifest = found["step"], found["manifest_id"]
    reason = "part-0 does not hash to the sha256 in the manifest"
    more = f', "part": "part-0", "reason": "{reason}"' if event != "resumed" else ""
    return f'{{"event": "{event}", "step": {step}, "manifest_id": "{manifest}"{more}}}'
