"""No task that could be claimed was passed over for long while later ones were claimed."""

from dataclasses import dataclass

from chaos.history import Event, History, integer
from chaos.model import Verdict
from chaos.ports import Invariant
from chaos.words import counted

PATIENCE_S = 30.0
ROUNDS = 2
NS = 1_000_000_000
OPENS = {"TASK_CREATED", "TASK_REQUEUED"}
CLOSES = {"LEASE_CLAIMED", "LEASE_RENEWED", "TASK_COMMIT_ACCEPTED", "TASK_EXHAUSTED"}
ENDS = {"JOB_SUCCEEDED", "JOB_FAILED", "JOB_CANCELLED"}


@dataclass(frozen=True, slots=True)
class Wait:
    """A time in which a task could be claimed; `taken` where it was claimed at its end."""

    task_id: str
    began_ns: int
    ended_ns: int
    taken: bool = False


def judge(history: History) -> tuple[Verdict, str]:
    """Count the claims, in each wait, of tasks that became claimable after it began.

    Starved is what waited PATIENCE_S and saw ROUNDS such claims for each worker go by.
    """
    workers = integer(history.one("plan").get("workers"))
    events = history.events()
    if workers is None:
        return Verdict.UNKNOWN, "the plan does not say how many workers there are"
    if len({event.boot_id for event in events}) > 1:
        return Verdict.UNKNOWN, "the events are of several boots: no common clock"
    waits = _waits(events)
    if not waits:
        return Verdict.UNKNOWN, "no task was ever to be claimed"
    claims = [wait for wait in waits if wait.taken]
    for wait in waits:
        waited_s = (wait.ended_ns - wait.began_ns) / NS
        passed = sum(
            wait.began_ns < each.began_ns and each.ended_ns < wait.ended_ns for each in claims
        )
        if waited_s > PATIENCE_S and passed >= ROUNDS * workers:
            told = f"{wait.task_id} waited {waited_s:.1f} s while {passed} later ones were claimed"
            return Verdict.VIOLATED, told
    longest_s = max(wait.ended_ns - wait.began_ns for wait in waits) / NS
    told = f"{counted(len(waits), 'wait')} for a worker, the longest {longest_s:.1f} s"
    return Verdict.VALID, f"{told}: none was passed over"


def _waits(events: tuple[Event, ...]) -> list[Wait]:
    open_ns: dict[str, tuple[str | None, int]] = {}
    waits = []
    for event in events:
        task = event.task_id
        if event.type in OPENS and task is not None:
            open_ns[task] = (event.job_id, event.mono_ns + _backoff_ns(event))
        elif event.type in CLOSES and task in open_ns:
            taken = event.type == "LEASE_CLAIMED"
            waits.append(Wait(task, open_ns.pop(task)[1], event.mono_ns, taken))
        elif event.type in ENDS:
            ended = [name for name, (job, _) in open_ns.items() if job == event.job_id]
            waits += [Wait(name, open_ns.pop(name)[1], event.mono_ns) for name in ended]
    last_ns = events[-1].mono_ns if events else 0
    return waits + [Wait(name, began, last_ns) for name, (_, began) in open_ns.items()]


def _backoff_ns(event: Event) -> int:
    seconds = event.data.get("backoff_s")
    return int(seconds * NS) if isinstance(seconds, int | float) else 0


INVARIANT = Invariant("none_starved", judge)
