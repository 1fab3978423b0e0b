"""Every resume takes the newest valid checkpoint of its own chain, and says which.

Never a torn, corrupt or foreign one: what a superseded attempt wrote beyond the step at which it
was taken over does not count.
"""

from chaos.figures import lineage
from chaos.figures.lineage import NOTHING, Resume, Seen
from chaos.history import Event, History, HistoryError, integer, items
from chaos.model import Verdict
from chaos.ports import Invariant

NONE_FOLLOWED = "no attempt was followed by another"


def judge(history: History) -> tuple[Verdict, str]:
    """Judge each disturbed task that has checkpoints; the worst counts."""
    told: dict[Verdict, list[str]] = {}
    for lane in lineage.lanes(history):
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
    chain, claims = lineage.chain(history, lane), lineage.claims(history, lane)
    seen = lineage.seen(history, lane)
    bad = lineage.bad(history, lane, seen, claims)
    for index, resume in enumerate(chain):
        claim = claims.get(resume.attempt_id)
        if claim is None:
            return Verdict.VIOLATED, f"{resume.attempt_id} is in the lineage without a lease"
        mine = [found for found in seen if _counts(found, chain[: index + 1])]
        if bad.get(str(resume.manifest_id), claim.mono_ns) < claim.mono_ns:
            return Verdict.VIOLATED, f"{_took(resume)}, which is bad"
        before = [f.step for f in mine if _before(f, claim) and f.manifest_id not in bad]
        newest = max(before, default=NOTHING)
        if resume.step < newest:
            return (
                Verdict.VIOLATED,
                f"{_took(resume)} although step {newest} was valid",
            )
        if resume.manifest_id is not None and resume.manifest_id not in {
            found.manifest_id for found in mine
        }:
            return _unseen(resume, seen)
    return _claimed_truly(history, lane, chain)


def _unseen(resume: Resume, seen: list[Seen]) -> tuple[Verdict, str]:
    if resume.manifest_id in {found.manifest_id for found in seen}:
        return Verdict.VIOLATED, f"{_took(resume)}: not of its chain"
    return Verdict.UNKNOWN, f"{_took(resume)}, which nobody saw"


def _took(resume: Resume) -> str:
    return f"{resume.attempt_id} took over {lineage.told(resume)}"


def _claimed_truly(history: History, lane: str, chain: list[Resume]) -> tuple[Verdict, str]:
    """Compare what the accepted attempt says of its resume with the lineage."""
    role, _, index = lane.partition("/")
    task = items(history.final(role)["tasks"])[int(index or 0)]
    if task.get("state") == "FAILED" and len(chain) == 1:
        return Verdict.VALID, f"{NONE_FOLLOWED}, so none resumed"
    if task.get("state") != "COMPLETED":
        return Verdict.UNKNOWN, f"the task is {task.get('state')}: no result says where it resumed"
    taken = {resume.attempt_id: resume for resume in chain}.get(str(task.get("lease_id")))
    if taken is None:
        return Verdict.UNKNOWN, f"the lineage has no attempt {task.get('lease_id')}"
    said = integer(task.get("resumed_from"))
    if (NOTHING if said is None else said) != taken.step:
        return (
            Verdict.VIOLATED,
            f"the result says resumed_from {said}, it took over {lineage.told(taken)}",
        )
    resumes = [lineage.told(resume) for resume in chain[1:]]
    if not resumes:
        return Verdict.VALID, f"{NONE_FOLLOWED}, so none resumed"
    return Verdict.VALID, f"resumed from {', then '.join(resumes)}: the newest valid one"


def _before(found: Seen, claim: Event) -> bool:
    return found.boot_id == claim.boot_id and found.t_ns < claim.mono_ns


def _counts(found: Seen, chain: list[Resume]) -> bool:
    """Whether the last attempt of `chain` may take over what was seen."""
    earlier = [resume.attempt_id for resume in chain[:-1]]
    if found.attempt_id not in earlier:
        return False
    after = earlier.index(found.attempt_id) + 1
    return all(found.step <= resume.step for resume in chain[after:-1])


INVARIANT = Invariant("resume_newest_valid", judge)
