"""Judges a saved history: pure, so that yesterday's run can be judged with today's invariants."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from chaos.figures import figures, late
from chaos.history import History, HistoryError, items, mapping
from chaos.model import Finding, JsonMap, JsonValue, Landed, Verdict
from chaos.ports import Invariant

SCHEMA = "chaos_v1"
FIRST_STANDING = (
    "history_complete",
    "logs_complete",
    "faults_landed",
    "one_accepted_result",
    "fenced_holder",
    "one_live_lease",
    "no_task_lost",
    "accepted_bytes",
    "detection_bound",
    "recovery_bound",
    "steady_again",
    "machine_clean",
)
"""What every run is judged by, also one whose history is of schema 1."""
STANDING = (
    *FIRST_STANDING,
    "answers_kept",
    "coordinator_keeps",
    "lease_linearizable",
    "none_starved",
    "steps_never_regress",
    "samples_once",
    "loaded_bytes",
    "no_orphan_process",
)


@dataclass(frozen=True, slots=True)
class Judgement:
    """What is said of one run; `to_json` is what verdict.json holds."""

    experiment: str
    seed: int
    verdict: Verdict
    faults: tuple[JsonMap, ...]
    findings: tuple[Finding, ...]
    figures: Mapping[str, JsonValue]
    clean: Mapping[str, JsonValue]
    end: str
    reason: str | None
    log_tails: Mapping[str, str]
    """Of a run that could not start: the last lines of what stands in its way, by container."""

    @property
    def outcome(self) -> str:
        """The verdict for people: a run that the machine could not carry out is named so."""
        cannot = self.end == "cannot_run" and self.verdict is not Verdict.VIOLATED
        return "cannot run" if cannot else str(self.verdict)

    def to_json(self) -> dict[str, JsonValue]:
        """Return the verdict as JSON."""
        return {
            "schema": SCHEMA,
            "experiment": self.experiment,
            "seed": self.seed,
            "verdict": self.verdict,
            "end": self.end,
            "reason": self.reason,
            "log_tails": dict(self.log_tails),
            "faults": [dict(fault) for fault in self.faults],
            "invariants": [
                {"name": found.name, "verdict": found.verdict, "detail": found.detail}
                for found in self.findings
            ],
            "figures": dict(self.figures),
            "clean": dict(self.clean),
        }


def invariants_of(history: History) -> tuple[str, ...]:
    """Return the names that a run is judged by: those of its plan, then the standing ones.

    A history of schema 1 lacks what the later ones need, and keeps its verdict.
    """
    named = history.one("plan")["invariants"]
    chosen = [str(name) for name in named] if isinstance(named, list) else []
    standing = STANDING if history.schema > 1 else FIRST_STANDING
    return tuple(dict.fromkeys((*chosen, *standing)))


def judge(history: History, invariants: Sequence[Invariant]) -> Judgement:
    """Judge a history; a run that did not come to its end is at best unknown.

    Of a run that ended before it had its jobs, only what was found out is listed.
    """
    plan, end = history.one("plan"), _end(history)
    findings = [_find(invariant, history) for invariant in invariants]
    measured, problem = _figures(history)
    findings += [problem] if problem else []
    if _never_started(history):
        findings = [found for found in findings if found.verdict is Verdict.VIOLATED]
    verdicts = [found.verdict for found in findings]
    if end.get("end") != "completed":
        verdicts.append(Verdict.UNKNOWN)
    return Judgement(
        experiment=str(plan["experiment"]),
        seed=int(str(plan["seed"])),
        verdict=Verdict.worst(verdicts),
        faults=_faults(history),
        findings=tuple(findings),
        figures=measured,
        clean=_clean(history),
        end=str(end.get("end", "unfinished")),
        reason=str(end["reason"]) if end.get("reason") else None,
        log_tails={name: str(tail) for name, tail in mapping(end.get("log_tails")).items()},
    )


def _never_started(history: History) -> bool:
    """Whether the run ended, by its own word, before any job was submitted."""
    ended = _end(history).get("end") in {"cannot_run", "interrupted"}
    return ended and not history.of("job_submitted")


def _find(invariant: Invariant, history: History) -> Finding:
    try:
        verdict, detail = invariant.judge(history)
    except HistoryError as error:
        return Finding(invariant.name, Verdict.UNKNOWN, str(error), invariant.meaning)
    except Exception as error:  # noqa: BLE001 (boundary: a judge that crashes is never a pass)
        text = f"the judge crashed: {type(error).__name__}: {error}"
        return Finding(invariant.name, Verdict.UNKNOWN, text, invariant.meaning)
    decided_at = _decided_at(invariant, history) if verdict is Verdict.VIOLATED else None
    return Finding(invariant.name, verdict, detail, invariant.meaning, decided_at)


def _decided_at(invariant: Invariant, history: History) -> int:
    """Return the number of the last record of a shortest beginning that is violated already."""
    low, high = 0, len(history.records)
    while high - low > 1:
        middle = (low + high) // 2
        if _is_violated(invariant, History(history.records[:middle])):
            high = middle
        else:
            low = middle
    return history.records[high - 1].seq if history.records else 0


def _is_violated(invariant: Invariant, beginning: History) -> bool:
    try:
        return invariant.judge(beginning)[0] is Verdict.VIOLATED
    except Exception:  # noqa: BLE001 (boundary: a beginning may lack what a judge takes for granted)
        return False


def _figures(history: History) -> tuple[dict[str, JsonValue], Finding | None]:
    """Return the figures; where they cannot be computed, none of them and why."""
    try:
        return figures(history), None
    except Exception as error:  # noqa: BLE001 (boundary: without figures a verdict is still one)
        text = f"they cannot be computed: {type(error).__name__}: {error}"
        return {}, Finding("figures", Verdict.UNKNOWN, text)


def _end(history: History) -> JsonMap:
    ends = history.of("end")
    return ends[-1] if ends else {}


def _faults(history: History) -> tuple[JsonMap, ...]:
    """Return one entry for each planned fault; one without a receipt has missed."""
    receipts = {str(receipt["fault_id"]): receipt for receipt in history.of("fault_receipt")}
    fired_at = {
        str(record.data["fault_id"]): record.wall
        for record in history.records
        if record.kind == "fault_firing"
    }
    missed = _late(history)
    entries: list[JsonMap] = []
    for action in items(history.one("plan")["schedule"]):
        fault_id = str(action["fault_id"])
        receipt = receipts.get(fault_id, {})
        evidence = mapping(receipt.get("evidence")) or {"reason": "it never fired"}
        landed = receipt.get("landed", Landed.MISSED)
        if fault_id in missed:
            landed, evidence = Landed.MISSED, {"reason": missed[fault_id], **evidence}
        entries.append(
            {
                "id": fault_id,
                "kind": action.get("kind"),
                "target": action.get("target"),
                "fired_at": fired_at.get(fault_id),
                "landed": landed,
                "evidence": evidence,
            }
        )
    return tuple(entries)


def _late(history: History) -> Mapping[str, str]:
    """Return which faults came too late; where the events cannot be read, judges say so."""
    try:
        return late(history)
    except HistoryError:
        return {}


def _clean(history: History) -> dict[str, JsonValue]:
    """Return how many objects of the run were left; None where nobody looked."""
    audits = history.of("audit")
    names = ("containers", "networks", "volumes", "toxics", "paused", "chains")
    if not audits:
        return dict.fromkeys(names)
    audit = {"chains": [], **audits[-1]}
    left = {name: audit[name] for name in names}
    return {name: len(found) if isinstance(found, list) else None for name, found in left.items()}
