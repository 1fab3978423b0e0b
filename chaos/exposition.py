"""The verdicts of runs in Prometheus' text format, for a node exporter's textfile collector."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from chaos.history import History
from chaos.judge import Judgement
from chaos.model import JsonValue, Landed, Verdict

NAME = "metrics.prom"
HISTOGRAMS = {"chaos_run_mttd_seconds": "mttd_s", "chaos_run_mttr_seconds": "mttr_s"}
BUCKETS_S = (0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0)
FAMILIES = {
    "chaos_run_verdict": ("gauge", "1 for the verdict of the run, 0 for the others"),
    "chaos_run_faults": ("gauge", "planned faults by what their receipts say"),
    "chaos_run_invariants": ("gauge", "invariants by what they say of the run"),
    "chaos_run_goodput_ratio": ("gauge", "useful by executed steps: at most this"),
    "chaos_run_wall_seconds": ("gauge", "from the first record of the run to its last"),
    "chaos_run_left_objects": ("gauge", "what the run left on the machine, by kind"),
    "chaos_run_timestamp_seconds": ("gauge", "when the run began, in seconds since 1970"),
    "chaos_run_mttd_seconds": ("histogram", "from a fault until the lost task was claimable"),
    "chaos_run_mttr_seconds": ("histogram", "from a fault until a later attempt's first step"),
}
Labels = tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class Measured:
    """What is told of one run; times in seconds."""

    judgement: Judgement
    wall_s: float
    began_s: float | None


@dataclass(frozen=True, slots=True)
class Sample:
    """One line of a family."""

    name: str
    labels: Labels
    value: float


def measured(judgement: Judgement, history: History) -> Measured:
    """Return what is told of a run whose history is at hand."""
    times = [record.t_ns for record in history.records]
    wall_s = (max(times) - min(times)) / 1e9 if times else 0.0
    return Measured(judgement, wall_s, _began_s(history))


def _began_s(history: History) -> float | None:
    try:
        return datetime.fromisoformat(history.records[0].wall).timestamp()
    except (IndexError, ValueError):
        return None


def exposition(runs: Sequence[Measured]) -> str:
    """Return the samples of runs, family by family."""
    lines = []
    for family, (kind, meaning) in FAMILIES.items():
        samples = [sample for run in runs for sample in _samples(family, run)]
        if samples:
            lines += [f"# HELP {family} {meaning}", f"# TYPE {family} {kind}"]
            lines += [_line(sample) for sample in samples]
    return "\n".join(lines) + "\n"


def _samples(family: str, run: Measured) -> Iterator[Sample]:
    """Yield the samples of one family; a figure that was not measured has none."""
    judgement = run.judgement
    own = (("experiment", judgement.experiment), ("seed", str(judgement.seed)))
    if (values := _values(judgement).get(family)) is not None:
        label, counts = values
        for name, count in counts.items():
            yield Sample(family, (*own, (label, str(name))), count)
    elif (figure := HISTOGRAMS.get(family)) is not None:
        yield from _histogram(family, own, judgement.figures.get(figure))
    elif (single := _single(run).get(family)) is not None:
        yield Sample(family, own, single)


def _values(judgement: Judgement) -> dict[str, tuple[str, Mapping[str, float]]]:
    """Return family -> label and value of each, for those with a label of their own."""
    landed = Counter(str(fault["landed"]) for fault in judgement.faults)
    said = Counter(found.verdict for found in judgement.findings)
    left = {name: n for name, n in judgement.clean.items() if isinstance(n, int)}
    return {
        "chaos_run_verdict": ("verdict", {each: each == judgement.verdict for each in Verdict}),
        "chaos_run_faults": ("landed", {each: landed[each] for each in Landed}),
        "chaos_run_invariants": ("verdict", {each: said[each] for each in Verdict}),
        "chaos_run_left_objects": ("kind", left),
    }


def _single(run: Measured) -> dict[str, float | None]:
    goodput = run.judgement.figures.get("goodput")
    return {
        "chaos_run_goodput_ratio": goodput if isinstance(goodput, int | float) else None,
        "chaos_run_wall_seconds": round(run.wall_s, 3),
        "chaos_run_timestamp_seconds": run.began_s,
    }


def _histogram(family: str, own: Labels, values: JsonValue) -> Iterator[Sample]:
    found = (
        [float(v) for v in values if isinstance(v, int | float)] if isinstance(values, list) else []
    )
    for bound in BUCKETS_S:
        below = sum(value <= bound for value in found)
        yield Sample(f"{family}_bucket", (*own, ("le", f"{bound:g}")), below)
    yield Sample(f"{family}_bucket", (*own, ("le", "+Inf")), len(found))
    yield Sample(f"{family}_sum", own, round(sum(found), 6))
    yield Sample(f"{family}_count", own, len(found))


def _line(sample: Sample) -> str:
    labels = ",".join(f'{name}="{_escaped(value)}"' for name, value in sample.labels)
    return f"{sample.name}{{{labels}}} {_number(sample.value)}"


def _number(value: float) -> str:
    return str(int(value)) if value == int(value) else repr(float(value))


def _escaped(value: str) -> str:
    """Return a label's value; what is no text in UTF-8 is replaced."""
    text = value.encode("utf-8", "replace").decode("utf-8")
    return text.replace("\\", "\\\\").replace("\n", "\\n").replace('"', '\\"')
