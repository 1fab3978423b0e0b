"""Every resume takes the newest valid checkpoint of its own chain, and says which.

Never a torn, corrupt or foreign one: what a superseded attempt wrote beyond the step at which it
was taken over does not count.
"""

from dataclasses import dataclass

from chaos.history import Event, History, HistoryError, integer, items, mapping, text
from chaos.model import Verdict
from chaos.ports import Invariant

NOTHING = -1
NONE_FOLLOWED = "no attempt was followed by another"


@dataclass(frozen=True, slots=True)
class Seen:
    """A checkpoint that was seen on the volume, and when; `step` is what its manifest states."""

    manifest_id: str
    attempt_id: str
    step: int
    t_ns: int
    boot_id: str


@dataclass(frozen=True, slots=True)
class Resume:
    """What an attempt took over; `step` is NOTHING for a fresh start."""

    attempt_id: str
    manifest_id: str | None
    step: int


def judge(history: History) -> tuple[Verdict, str]:
    """Judge each disturbed task that has checkpoints; the worst counts."""
    roles = history.likes()
    lanes = sorted(
        {str(tree["role"]) for tree in history.of("checkpoints") if items(tree.get("lineage"))}
    )
    told: dict[Verdict, list[str]] = {}
    for lane in [lane for lane in lanes if lane.partition("/")[0] in roles]:
        verdict, why = _judge(history, lane)
        told.setdefault(verdict, []).append(why if lane == "main" else f"{lane} {why}")
    if not told:
        raise HistoryError("no lineage of a disturbed job was recorded")
    worst = Verdict.worst([*told])
    if worst is not Verdict.VALID or len(told[worst]) == 1:
        return worst, "; ".join(told[worst])
    resumed = [why for why in told[worst] if NONE_FOLLOWED not in why]
    rest = len(told[worst]) - len(resumed)
    return worst, "; ".join([*resumed, *([f"{rest} had nothing to resume"] if rest else [])])


def _judge(history: History, lane: str) -> tuple[Verdict, str]:
    """Compare each takeover in the lineage with what had been seen before its claim."""
    chain, claims, seen = _chain(history, lane), _claims(history, lane), _seen(history, lane)
    bad = _bad(history, lane, seen, claims)
    for index, resume in enumerate(chain):
        claim = claims.get(resume.attempt_id)
        if claim is None:
            return Verdict.VIOLATED, f"{resume.attempt_id} is in the lineage without a lease"
        mine = [found for found in seen if _counts(found, chain[: index + 1])]
        if resume.manifest_id in bad:
            return Verdict.VIOLATED, f"{resume.attempt_id} took over {_told(resume)}, which is bad"
        before = [f.step for f in mine if _before(f, claim) and f.manifest_id not in bad]
        newest = max(before, default=NOTHING)
        if resume.step < newest:
            return (
                Verdict.VIOLATED,
                f"{resume.attempt_id} took over {_told(resume)} although step {newest} was valid",
            )
        if resume.manifest_id is not None and resume.manifest_id not in {
            found.manifest_id for found in mine
        }:
            return _unseen(resume, seen)
    return _claimed_truly(history, lane, chain)


def _unseen(resume: Resume, seen: list[Seen]) -> tuple[Verdict, str]:
    if resume.manifest_id in {found.manifest_id for found in seen}:
        return Verdict.VIOLATED, f"{resume.attempt_id} took over {_told(resume)}: not of its chain"
    return Verdict.UNKNOWN, f"{resume.attempt_id} took over {_told(resume)}, which nobody saw"


def _claimed_truly(history: History, lane: str, chain: list[Resume]) -> tuple[Verdict, str]:
    """Compare what the accepted attempt says of its resume with the lineage."""
    role, _, index = lane.partition("/")
    task = items(history.final(role)["tasks"])[int(index or 0)]
    if task.get("state") != "COMPLETED":
        return Verdict.UNKNOWN, f"the task is {task.get('state')}: no result says where it resumed"
    taken = {resume.attempt_id: resume for resume in chain}.get(str(task.get("lease_id")))
    if taken is None:
        return Verdict.UNKNOWN, f"the lineage has no attempt {task.get('lease_id')}"
    said = integer(task.get("resumed_from"))
    if (NOTHING if said is None else said) != taken.step:
        return Verdict.VIOLATED, f"the result says resumed_from {said}, it took over {_told(taken)}"
    resumes = [_told(resume) for resume in chain[1:]]
    if not resumes:
        return Verdict.VALID, f"{NONE_FOLLOWED}, so none resumed"
    return Verdict.VALID, f"resumed from {', then '.join(resumes)}: the newest valid one"


def _chain(history: History, lane: str) -> list[Resume]:
    trees = [tree for tree in history.of("checkpoints") if tree.get("role") == lane]
    links = items(trees[-1].get("lineage"))
    return [
        Resume(
            str(link["attempt_id"]),
            text(link.get("manifest_id")),
            NOTHING if (step := integer(link.get("step"))) is None else step,
        )
        for link in links
    ]


def _claims(history: History, lane: str) -> dict[str, Event]:
    return {
        str(event.lease_id): event
        for event in history.events()
        if event.type == "LEASE_CLAIMED" and history.lanes.get(str(event.task_id)) == lane
    }


def _seen(history: History, lane: str) -> list[Seen]:
    return [
        Seen(str(s["manifest_id"]), str(s["attempt_id"]), step, record.t_ns, record.boot_id)
        for record in history.records
        if record.kind in {"committed", "checkpoints"} and record.data.get("role") == lane
        for s in items(record.data.get("checkpoints", record.data.get("steps")))
        if s.get("manifest_id") and (step := integer(s.get("step"))) is not None
    ]


def _bad(
    history: History, lane: str, seen: list[Seen], claims: dict[str, Event]
) -> set[str | None]:
    """Return the manifests of checkpoints that a fault damaged, or that were found damaged.

    A fault says which step it damaged, and when: that of an attempt claimed before; or it names
    the manifests, as `corrupted`.
    """
    bad: set[str | None] = {
        text(entry.get("manifest_id"))
        for tree in history.of("checkpoints")
        for entry in items(tree.get("checkpoints"))
        if entry.get("state") not in {"valid", "committed"}
    }
    for receipt in history.of("fault_receipt"):
        evidence, at_ns = mapping(receipt.get("evidence")), integer(receipt.get("took_effect_ns"))
        here = history.lanes.get(str(evidence.get("task_id")), lane) == lane
        if here:
            bad |= {text(each.get("manifest_id")) for each in items(evidence.get("corrupted"))}
        if "after_sha256" in evidence and at_ns is not None and here:
            bad |= {
                found.manifest_id
                for found in seen
                if found.step == evidence.get("step")
                and (claim := claims.get(found.attempt_id)) is not None
                and claim.mono_ns < at_ns
            }
    return bad - {None}


def _before(found: Seen, claim: Event) -> bool:
    return found.boot_id == claim.boot_id and found.t_ns < claim.mono_ns


def _counts(found: Seen, chain: list[Resume]) -> bool:
    """Whether the last attempt of `chain` may take over what was seen."""
    earlier = [resume.attempt_id for resume in chain[:-1]]
    if found.attempt_id not in earlier:
        return False
    after = earlier.index(found.attempt_id) + 1
    return all(found.step <= resume.step for resume in chain[after:-1])


def _told(resume: Resume) -> str:
    return "nothing" if resume.step == NOTHING else f"step {resume.step} ({resume.manifest_id})"


INVARIANT = Invariant("resume_newest_valid", judge)
