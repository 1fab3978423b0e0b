"""Which checkpoint each attempt of a task took over, which were there, which were damaged."""

from dataclasses import dataclass

from chaos.history import Event, History, integer, items, mapping, text

NOTHING = -1


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


def chain(history: History, lane: str) -> list[Resume]:
    """Return what each attempt of a task took over, as the volume's own lineage has it."""
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


def claims(history: History, lane: str) -> dict[str, Event]:
    """Return lease id -> its claim, of one task."""
    return {
        str(event.lease_id): event
        for event in history.events()
        if event.type == "LEASE_CLAIMED" and history.lanes.get(str(event.task_id)) == lane
    }


def seen(history: History, lane: str) -> list[Seen]:
    """Return every sight of a checkpoint of a task."""
    return [
        Seen(str(s["manifest_id"]), str(s["attempt_id"]), step, record.t_ns, record.boot_id)
        for record in history.records
        if record.kind in {"committed", "checkpoints"} and record.data.get("role") == lane
        for s in items(record.data.get("checkpoints", record.data.get("steps")))
        if s.get("manifest_id") and (step := integer(s.get("step"))) is not None
    ]


def bad(
    history: History, lane: str, sights: list[Seen], claimed: dict[str, Event]
) -> dict[str, int]:
    """Return manifest -> when a fault damaged it, 0 where it was found damaged and no fault says.

    A fault says which step it damaged, and when: that of an attempt claimed before.
    """
    found_bad = {
        str(entry["manifest_id"]): 0
        for tree in history.of("checkpoints")
        for entry in items(tree.get("checkpoints"))
        if entry.get("state") not in {"valid", "committed"} and entry.get("manifest_id")
    }
    damaged: dict[str, int] = {}
    for receipt in history.of("fault_receipt"):
        evidence, at_ns = mapping(receipt.get("evidence")), integer(receipt.get("took_effect_ns"))
        here = history.lanes.get(str(evidence.get("task_id")), lane) == lane
        for entry in items(evidence.get("corrupted")):
            damaged.setdefault(str(entry.get("manifest_id")), at_ns or 0)
        if "after_sha256" in evidence and at_ns is not None and here:
            for found in sights:
                claim = claimed.get(found.attempt_id)
                is_older = claim is not None and claim.mono_ns < at_ns
                if found.step == evidence.get("step") and is_older:
                    damaged.setdefault(found.manifest_id, at_ns)
    return found_bad | damaged


def told(resume: Resume) -> str:
    """Return what was taken over, in words."""
    return "nothing" if resume.step == NOTHING else f"step {resume.step} ({resume.manifest_id})"


def lanes(history: History) -> list[str]:
    """Return the tasks whose lineage was recorded, but for those of jobs that nobody disturbs."""
    undisturbed = {*history.likes().values()}
    known = {str(t["role"]) for t in history.of("checkpoints") if items(t.get("lineage"))}
    return sorted(lane for lane in known if lane.partition("/")[0] not in undisturbed)
