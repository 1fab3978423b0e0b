"""The disturbed job ends bit for bit like the one that nobody touched, each sample seen once."""

from chaos.history import History, HistoryError, mapping
from chaos.model import JsonValue, Verdict
from chaos.ports import Invariant

COMPARED = ("weights_sha256", "sample_chain", "samples_seen")


def judge(history: History) -> tuple[Verdict, str]:
    """Compare what both jobs report of their weights and of the samples that they saw.

    `sample_chain` hashes the ids of all samples in the order of training and is carried in the
    checkpoint: a sample that is repeated or left out changes it.
    """
    claims = [e for e in history.events(history.job_id("reference")) if e.type == "LEASE_CLAIMED"]
    if len(claims) != 1:
        return Verdict.UNKNOWN, f"the reference had {len(claims)} attempts: not free of faults"
    main, reference = _metrics(history, "main"), _metrics(history, "reference")
    for name in COMPARED:
        if main[name] != reference[name]:
            return (
                Verdict.VIOLATED,
                f"{name} is {main[name]}, without faults it is {reference[name]}",
            )
    samples = main["samples_seen"]
    return Verdict.VALID, f"the same weights after the same {samples} samples in the same order"


def _metrics(history: History, role: str) -> dict[str, JsonValue]:
    metrics = mapping(history.final(role).get("metrics"))
    if missing := [name for name in COMPARED if metrics.get(name) is None]:
        raise HistoryError(f"job {role!r} reports no {', '.join(missing)}")
    return metrics


INVARIANT = Invariant("same_as_reference", judge)
