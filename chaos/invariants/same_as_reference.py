"""A disturbed job ends bit for bit like the one that nobody touched, each sample seen once."""

from collections import Counter

from chaos.history import History, HistoryError, mapping
from chaos.model import JsonValue, Verdict
from chaos.ports import Invariant
from chaos.words import counted

COMPARED = ("weights_sha256", "sample_chain", "samples_seen")


def judge(history: History) -> tuple[Verdict, str]:
    """Compare, task by task, what both jobs report of their weights and of the samples they saw.

    `sample_chain` hashes the ids of all samples in the order of training and is carried in the
    checkpoint: a sample that is repeated or left out changes it.
    """
    compared, samples = 0, 0
    for role, like in history.likes().items():
        if (touched := _touched(history, like)) is not None:
            return Verdict.UNKNOWN, touched
        pairs = zip(_metrics(history, role), _metrics(history, like), strict=True)
        for index, (found, reference) in enumerate(pairs):
            for name in COMPARED:
                if found[name] != reference[name]:
                    return (
                        Verdict.VIOLATED,
                        f"{role}, task {index}: {name} is {found[name]}, without faults it is "
                        f"{reference[name]}",
                    )
            compared, samples = compared + 1, samples + int(str(found["samples_seen"]))
    if not compared:
        return Verdict.UNKNOWN, "no job has another one to be compared with"
    told = f"the same weights after the same {samples} samples in the same order"
    return Verdict.VALID, told if compared == 1 else f"{counted(compared, 'task')}: {told}"


def _touched(history: History, like: str) -> str | None:
    """Say why a job was not free of faults, None where it was."""
    events = history.events(history.job_id(like))
    claims = Counter(str(e.task_id) for e in events if e.type == "LEASE_CLAIMED")
    again = [count for count in claims.values() if count != 1]
    if again or not claims:
        attempts = again[0] if again else 0
        return f"the reference {like} had {attempts} attempts at a task: not free of faults"
    return None


def _metrics(history: History, role: str) -> list[dict[str, JsonValue]]:
    found = [mapping(end.get("metrics")) for end in history.task_ends(role)]
    for metrics in found:
        if missing := [name for name in COMPARED if metrics.get(name) is None]:
            raise HistoryError(f"job {role!r} reports no {', '.join(missing)}")
    return found


INVARIANT = Invariant("same_as_reference", judge)
