"""The bytes that a resume loads are those of its manifest, proven by hash or by the end result."""

from chaos.figures import lineage
from chaos.figures.lineage import Resume
from chaos.history import Event, History, HistoryError, items, mapping, text
from chaos.model import JsonValue, Verdict
from chaos.ports import Invariant
from chaos.words import counted

PROOF = ("weights_sha256", "sample_chain")


def judge(history: History) -> tuple[Verdict, str]:
    """Judge each takeover on which the accepted result of a disturbed task builds.

    Either the harness hashed that checkpoint itself and found it valid, or the result, which
    follows from every byte loaded, is the undisturbed job's. What was found damaged before the
    claim must not have been loaded by anybody.
    """
    roles = history.likes()
    lanes = [lane for lane in lineage.lanes(history) if lane.partition("/")[0] in roles]
    if not roles:
        return Verdict.VALID, "not applicable: no job of the plan has an undisturbed twin"
    hashed, resulted = 0, 0
    for lane in lanes:
        claims = lineage.claims(history, lane)
        chain = [each for each in lineage.chain(history, lane) if each.manifest_id is not None]
        for resume in chain:
            claim = claims.get(resume.attempt_id)
            if claim is not None and _states(history, resume, claim) - {"valid"}:
                return Verdict.VIOLATED, f"{resume.attempt_id} took over {_told(resume)}"
        same = _same_result(history, lane)
        for resume in _used(history, lane, chain):
            is_hashed = "valid" in _states(history, resume, None)
            hashed, resulted = hashed + is_hashed, resulted + (same and not is_hashed)
            if not is_hashed and not same:
                return Verdict.UNKNOWN, f"nobody hashed {lineage.told(resume)} of {lane}"
    if not lanes:
        raise HistoryError("no lineage of a disturbed job was recorded")
    told = f"{counted(hashed + resulted, 'takeover')} proven: {hashed} by hash"
    return Verdict.VALID, f"{told}, {resulted} by the result that follows from each byte"


def _told(resume: Resume) -> str:
    return f"{lineage.told(resume)}, which had been found damaged before"


def _states(history: History, resume: Resume, before: Event | None) -> set[str]:
    """Return how a checkpoint was found by whoever hashed it, at all or before an event."""
    return {
        str(found.get("state"))
        for record in history.records
        if record.kind == "checkpoints"
        and (before is None or (record.t_ns < before.mono_ns and record.boot_id == before.boot_id))
        for found in items(record.data.get("checkpoints"))
        if found.get("manifest_id") == resume.manifest_id
    } - {"committed"}


def _used(history: History, lane: str, chain: list[Resume]) -> list[Resume]:
    """Return the takeovers that led to the accepted result, the last one first."""
    writer = {seen.manifest_id: seen.attempt_id for seen in lineage.seen(history, lane)}
    taken = {resume.attempt_id: resume for resume in chain}
    attempt: str | None = text(_end(history, lane).get("lease_id"))
    used: list[Resume] = []
    while attempt in taken and taken[attempt] not in used:
        used.append(taken[attempt])
        attempt = writer.get(str(taken[attempt].manifest_id))
    return used


def _end(history: History, lane: str) -> dict[str, JsonValue]:
    role, _, index = lane.partition("/")
    return history.task_ends(role)[int(index or 0)]


def _same_result(history: History, lane: str) -> bool:
    role, _, index = lane.partition("/")
    pair = [
        mapping(history.task_ends(name)[int(index or 0)].get("metrics"))
        for name in (role, history.likes()[role])
    ]
    return all(pair[0].get(n) is not None and pair[0].get(n) == pair[1].get(n) for n in PROOF)


INVARIANT = Invariant("loaded_bytes", judge)
