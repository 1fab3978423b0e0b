"""What the runtime called each fault and did about it, beside what the plan expects.

A fault of the plan says so by its parameters `classes` (any of them is right), `action` and
`resumes` (true: from a step before the one that the fault hit).
"""

from dataclasses import dataclass

from chaos.figures.late import late
from chaos.history import Event, History, HistoryError, integer, items, mapping, text
from chaos.model import JsonValue, Landed

LAPSES = {"LEASE_EXPIRED", "TASK_REQUEUED"}
FAIL = "fail_job"


@dataclass(frozen=True, slots=True)
class Case:
    """One task and the faults that hit it; `wrong` is empty where all went as expected."""

    lane: str
    told: tuple[str, ...]
    wrong: tuple[str, ...]


def cases(history: History) -> tuple[Case, ...]:
    """Return a case for each task that a fault with an expectation hit."""
    missed = late(history)
    receipts = {str(r["fault_id"]): r for r in history.of("fault_receipt")}
    found: dict[str, list[tuple[str | None, str]]] = {}
    for action in items(history.one("plan")["schedule"]):
        params = mapping(action.get("params"))
        receipt = receipts.get(str(action["fault_id"]), {})
        if "action" not in params or receipt.get("landed") != Landed.LANDED:
            continue
        if action["fault_id"] in missed:
            continue
        evidence = mapping(receipt.get("evidence"))
        lease_id = text(evidence.get("lease_id")) or ""
        lane, answers = _judged(history, lease_id, params, evidence)
        found.setdefault(lane, []).extend(answers)
    return tuple(
        Case(
            lane,
            tuple(told for _, told in answers),
            tuple(problem for problem, _ in answers if problem is not None),
        )
        for lane, answers in sorted(found.items())
    )


def _judged(
    history: History,
    lease_id: str,
    params: dict[str, JsonValue],
    evidence: dict[str, JsonValue],
) -> tuple[str, list[tuple[str | None, str]]]:
    """Return the lane of the task and, for each thing expected, (what is wrong, what was seen)."""
    own = [event for event in history.events() if event.lease_id == lease_id]
    claim = next((event for event in own if event.type == "LEASE_CLAIMED"), None)
    if claim is None or claim.task_id is None:
        raise HistoryError(f"lease {lease_id!r}, which a fault hit, was never claimed")
    lane = history.lanes[claim.task_id]
    answers = [_class(own, params), _action(history, claim, own, params)]
    if params.get("resumes"):
        answers.append(_resumed(history, lane, lease_id, integer(evidence.get("step"))))
    return lane, answers


def _class(own: list[Event], params: dict[str, JsonValue]) -> tuple[str | None, str]:
    """Compare classes; a lease that lapsed needs none, for nobody was there to tell a failure."""
    wanted = params.get("classes")
    right = [str(name) for name in wanted] if isinstance(wanted, list) else []
    seen = [str(e.data.get("failure_class")) for e in own if e.type == "FAILURE_CLASSIFIED"]
    if not seen and any(event.type in LAPSES for event in own):
        return None, "its lease lapsed"
    if not seen:
        return "no class was recorded", "no class"
    problem = None if seen[-1] in right else f"called {seen[-1]}, not {' or '.join(right)}"
    return problem, seen[-1]


def _action(
    history: History, claim: Event, own: list[Event], params: dict[str, JsonValue]
) -> tuple[str | None, str]:
    """Compare the recorded action with the plan's, and with what was done."""
    wanted = str(params["action"])
    chosen = [str(e.data.get("action")) for e in own if e.type == "RECOVERY_ACTION_SELECTED"]
    if chosen and chosen[-1] != wanted:
        return f"the action was {chosen[-1]}, not {wanted}", chosen[-1]
    again = any(
        event.type == "LEASE_CLAIMED" and event.task_id == claim.task_id and event.id > claim.id
        for event in history.events()
    )
    if wanted == FAIL:
        return ("it was tried again" if again else None), "failed at once, no restart spent"
    return (None if again else "it was not tried again"), "tried again"


def _resumed(history: History, lane: str, lease_id: str, hit: int | None) -> tuple[str | None, str]:
    trees = [tree for tree in history.of("checkpoints") if tree.get("role") == lane]
    links = items(trees[-1].get("lineage")) if trees else []
    order = [str(link["attempt_id"]) for link in links]
    after = order.index(lease_id) + 1 if lease_id in order else len(links)
    step = integer(links[after].get("step")) if after < len(links) else None
    if step is None:
        return "it did not go on from a checkpoint", "started anew"
    told = f"resumed from step {step}"
    return (None if hit is None or step < hit else f"{told}, {hit} was hit"), told
