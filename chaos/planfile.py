"""Reads a plan back, also one that somebody edited: whatever it does not understand is refused."""

import hashlib
import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

from chaos.model import Action, Comeback, JobRequest, JsonMap, JsonValue, Trigger, UsageError
from chaos.schedule import PLAN_SCHEMA, Plan, describe_job

T = TypeVar("T")
Reader = Callable[[Any], Any]


def read_plan(path: Path) -> Plan:
    """Return the plan in a file, or in the plan.json of a run directory; raise UsageError."""
    file = path / "plan.json" if path.is_dir() else path
    try:
        data = json.loads(file.read_bytes())
    except (OSError, ValueError) as error:
        raise UsageError(f"{path} holds no plan: {error}") from error
    return plan_of(data, str(file))


def plan_of(data: object, where: str = "plan") -> Plan:
    """Return the plan that JSON describes; raise UsageError naming the field that is wrong."""
    if not isinstance(data, dict) or data.get("schema") != PLAN_SCHEMA:
        raise UsageError(f"{where} is no plan: its schema must be {PLAN_SCHEMA!r}")
    rest = {name: value for name, value in data.items() if name != "schema"}
    return _built(Plan, PLAN, rest, where)


def action_of(data: object, where: str = "action") -> Action:
    """Return the scheduled fault that JSON describes; raise UsageError."""
    return _built(Action, ACTION, data, where)


def requests(plan: Plan, today: Mapping[str, JobRequest]) -> dict[str, JobRequest]:
    """Return the jobs as the plan describes them, with the bytes that their files have today.

    `today` is what the plan's workload submits; raise UsageError where it lacks a file.
    """
    known = {path: data for request in today.values() for path, data in request.files.items()}
    found = {}
    for role in _in_order(plan.jobs, [*today]):
        described = plan.jobs[role]
        where = f"job {role!r}"
        request = _built(JobRequest, JOB, described, where)
        if missing := [path for path in request.files if path not in known]:
            raise UsageError(f"{where} needs {missing[0]!r}: no such file in {plan.workload!r}")
        found[role] = replace(request, files={path: known[path] for path in request.files})
    return found


def _in_order(jobs: Mapping[str, JsonValue], today: list[str]) -> list[str]:
    """Return the roles as they are submitted: a file has them by name, jobs wait for one another.

    Those that wait for what there is not stand at the end, for a check to refuse.
    """
    left = sorted(jobs, key=lambda role: today.index(role) if role in today else len(today))
    order: list[str] = []
    while left:
        free = [role for role in left if _awaited(jobs[role]) in {None, *order}]
        order += free or left
        left = [role for role in left if role not in order]
    return order


def _awaited(described: JsonValue) -> JsonValue:
    return described.get("starts_after") if isinstance(described, dict) else None


def differences(saved: Plan, now: Plan) -> tuple[str, ...]:
    """Say what runs now that is not what was saved: bytes of files, and images."""
    told = []
    for role, described in now.jobs.items():
        before, files = _files(saved.jobs.get(role)), _files(described)
        told += [
            f"{path} of job {role!r} has other bytes now"
            for path, digest in files.items()
            if before.get(path) != digest
        ]
    for name in sorted({*saved.images, *now.images}):
        if saved.images.get(name) != now.images.get(name):
            told.append(f"image {name} is another one now")
    return tuple(told)


def schedule_differences(saved: Plan, today: Plan) -> tuple[str, ...]:
    """Say in which faults a saved schedule is not what the experiment would plan today."""
    ours = {action.fault_id: action for action in saved.schedule}
    theirs = {action.fault_id: action for action in today.schedule}
    told = [f"{name} is only in the plan" for name in ours if name not in theirs]
    told += [f"{name} is left out" for name in theirs if name not in ours]
    told += [f"{name} is another" for name in ours if name in theirs and ours[name] != theirs[name]]
    return tuple(told)


def bound(plan: Plan, jobs: Mapping[str, JobRequest], images: Mapping[str, str]) -> Plan:
    """Return the plan as it runs now: with the digests of today's files and images."""
    described = {role: describe_job(request) for role, request in jobs.items()}
    return replace(plan, jobs=described, images=dict(images))


def digest_of(schedule: tuple[Action, ...]) -> str:
    """Return a short name for a schedule: equal ones have equal names."""
    text = json.dumps([_plain(action) for action in schedule], sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _plain(action: Action) -> JsonValue:
    told: list[JsonValue] = [repr(action.trigger), action.fault_id, action.kind, action.target,
                             str(action.comeback), action.deadline_s, dict(action.params),
                             [*action.lanes]]  # fmt: skip
    return told if action.tries == 1 else [*told, action.tries]


def _files(described: JsonValue) -> JsonMap:
    files = described.get("files") if isinstance(described, dict) else None
    return files if isinstance(files, dict) else {}


def _built(kind: type[T], fields: Mapping[str, Reader], data: object, where: str) -> T:
    if not isinstance(data, dict):
        raise UsageError(f"{where}: {data!r} is no object")
    if unknown := [name for name in data if name not in fields]:
        raise UsageError(f"{where} has no field {unknown[0]!r}; known: {', '.join(sorted(fields))}")
    read: dict[str, Any] = {}
    for name, value in data.items():
        try:
            read[name] = fields[name](value)
        except (TypeError, ValueError) as error:
            raise UsageError(f"{where}: {name}: {value!r}: {error}") from error
    try:
        return kind(**read)
    except TypeError as error:
        raise UsageError(f"{where} is incomplete: {error}") from error


def _is(*kinds: type) -> Reader:
    """Return a reader of values of exactly these types: True is no number."""

    def read(value: Any) -> Any:
        if type(value) not in kinds:
            raise TypeError(f"must be {' or '.join(kind.__name__ for kind in kinds)}")
        return value

    return read


def _maybe(read: Reader) -> Reader:
    return lambda value: None if value is None else read(value)


def _each(read: Reader) -> Reader:
    return lambda value: tuple(read(item) for item in LIST(value))


LIST, MAP = _is(list), _is(dict)
TEXT, WHOLE, FLAG, NUMBER = _is(str), _is(int), _is(bool), _is(int, float)
TRIGGER: dict[str, Reader] = {
    "role": TEXT,
    "step_at_least": _maybe(WHOLE),
    "checkpoints_at_least": _maybe(WHOLE),
    "after": _maybe(TEXT),
    "event": _maybe(TEXT),
    "elapsed_s": _maybe(NUMBER),
    "state": _maybe(TEXT),
    "log_of": _maybe(TEXT),
    "log_like": _maybe(TEXT),
    "file_like": _maybe(TEXT),
    "phase": _maybe(TEXT),
    "chance_per_s": _maybe(NUMBER),
}
ACTION: dict[str, Reader] = {
    "fault_id": TEXT,
    "kind": TEXT,
    "target": TEXT,
    "trigger": lambda value: _built(Trigger, TRIGGER, value, "trigger"),
    "deadline_s": NUMBER,
    "params": MAP,
    "comeback": Comeback,
    "lanes": _each(TEXT),
    "tries": WHOLE,
}
JOB: dict[str, Reader] = {
    "name": TEXT,
    "command": _each(TEXT),
    "files": MAP,
    "env": MAP,
    "required_outputs": _each(TEXT),
    "lease_s": NUMBER,
    "max_task_attempts": WHOLE,
    "keep_checkpoints": WHOLE,
    "task_params": _each(MAP),
    "starts_after": _maybe(TEXT),
    "like": _maybe(TEXT),
    "expected": TEXT,
    "no_progress_s": _maybe(NUMBER),
    "through_proxy": FLAG,
}
PLAN: dict[str, Reader] = {
    "experiment": TEXT,
    "summary": TEXT,
    "seed": WHOLE,
    "workers": WHOLE,
    "planted": _maybe(TEXT),
    "drain_s": NUMBER,
    "workload": TEXT,
    "jobs": MAP,
    "schedule": _each(action_of),
    "invariants": _each(TEXT),
    "images": MAP,
    "count": WHOLE,
    "limits_mib": MAP,
    "variants": _each(TEXT),
    "floor": WHOLE,
}
