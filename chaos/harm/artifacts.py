"""An output that the coordinator has accepted rots in its store.

Parameter `found_by`: "read" downloads the output afterwards, "scrub" restarts the coordinator,
whose scrubber then begins a pass; the fault holds until the damage is told, or FIND_S. Undone by
an upload of what was there before.
"""

import time

from chaos.history import integer, items, mapping, text
from chaos.model import JsonMap, JsonValue, Landed, NoTarget, Observation, Receipt
from chaos.ports import Scene
from chaos.ports.disks import Mode

AIM = "artifacts of "
FIND_S = 20.0
DEATH_TIMEOUT_S = 10.0
COORDINATOR = "coordinator"


def aimed_at(scene: Scene) -> bool:
    """Whether a fault speaks of the coordinator's artifacts."""
    return scene.action.target.startswith(AIM)


def undo(scene: Scene) -> tuple[tuple[str, JsonMap], ...]:
    """Upload the outputs again; before that, start a coordinator that was taken down for it."""
    restore: JsonMap = {"digests": [*accepted(scene)]}
    if scene.action.params.get("found_by") != "scrub":
        return (("restore_artifacts", restore),)
    start: JsonMap = {"service": COORDINATOR}
    return (("restore_artifacts", restore), ("start_container", start))


def fire(scene: Scene, mode: Mode) -> JsonMap:
    """Damage an output, then have somebody look for it."""
    target, outputs = scene.target(), accepted(scene)
    choice = integer(scene.action.params.get("choice")) or 0
    hurt = scene.world.disks.hurt_artifact(tuple(outputs), mode, choice)
    rotted: list[JsonValue] = [
        {
            "sha256": digest,
            "key": outputs.get(digest),
            "path": file.path,
            "before_sha256": file.before_sha256,
            "after_sha256": file.after_sha256,
        }
        for digest, file in hurt.blobs
        if file.changed
    ]
    told: JsonMap = {
        "mode": mode,
        "job_id": target.job_id,
        "task_id": target.task_id,
        "at_ns": hurt.at_ns,
        "rotted": rotted,
    }
    if not rotted:
        return {**told, "reason": hurt.reason or "the same bytes are read as before"}
    return {**told, **_searched(scene, items(rotted))}


def receipt(fired: JsonMap) -> Receipt:
    """Landed where another process reads other bytes: whether they were found is for judges."""
    landed = Landed.LANDED if items(fired["rotted"]) else Landed.MISSED
    return Receipt(landed, fired, took_effect_ns=integer(fired["at_ns"]))


def _searched(scene: Scene, rotted: list[dict[str, JsonValue]]) -> JsonMap:
    """Do what must find the damage, wait until it is told, and return how that went."""
    found_by = text(scene.action.params.get("found_by"))
    keys = [key for file in rotted if (key := text(file.get("key"))) is not None]
    given_out: list[JsonValue] = []
    if found_by is None or not keys:
        return {"found_by": found_by, "given_out": given_out}
    if found_by == "read":
        given_out = [scene.world.runtime.fetch(key) for key in keys]
    else:
        _restart(scene)
    wanted = {text(file.get("sha256")) for file in rotted}
    scene.wait(lambda seen: wanted <= _told_of(seen), FIND_S)
    return {
        "found_by": found_by,
        "given_out": given_out,
        "told": [*sorted(str(each) for each in wanted & _told_of(scene.observation()))],
    }


def _restart(scene: Scene) -> None:
    containers = scene.world.containers
    coordinator, since_ns = containers.coordinator(), time.monotonic_ns()
    containers.kill(coordinator)
    containers.wait_death(coordinator, since_ns, DEATH_TIMEOUT_S)
    containers.start(coordinator)


def _told_of(seen: Observation) -> set[str | None]:
    damaged = (event for event in seen.events if event.get("type") == "ARTIFACT_CORRUPT")
    return {text(mapping(event.get("data")).get("sha256")) for event in damaged}


def accepted(scene: Scene) -> dict[str, str]:
    """Return digest -> key of the outputs that were accepted of the task."""
    target = scene.target()
    if target.task_id is None:
        raise NoTarget(f"{target.symbol} is no task")
    commits = scene.observation().events_of(target.task_id, "TASK_COMMIT_ACCEPTED")
    found = {
        str(output["sha256"]): str(output["key"])
        for commit in commits
        for output in items(mapping(commit.get("data")).get("outputs"))
    }
    if not found:
        raise NoTarget(f"{target.symbol}: no output was accepted yet")
    return found
