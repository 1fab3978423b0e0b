"""What lies in a checkpoint tree: every step directory with its worth and the reason."""

import os
from dataclasses import dataclass
from pathlib import Path

from flashruntime.checkpoint import lineage
from flashruntime.checkpoint.commit import STAGING
from flashruntime.checkpoint.manifest import parse_step_name
from flashruntime.checkpoint.store import Admits, Kind, Resume, load, validation
from flashruntime.errors import NotFound


@dataclass(frozen=True, slots=True)
class StepReport:
    """One step directory; `path` is relative to the tree, `part` the file at fault."""

    path: str
    step: int | None
    kind: Kind
    reason: str
    part: str | None = None
    manifest_id: str | None = None
    attempt_id: str | None = None
    size_bytes: int | None = None
    validation: str | None = None


def inspect(root: Path) -> list[StepReport]:
    """Verify every step directory of the tree, newest first, then what interrupted saves left.

    Reads all of it and changes nothing. NotFound where `root` is no directory.
    """
    if not root.is_dir():
        raise NotFound(f"{root} is not a directory; name a checkpoint tree (FLASHML_CKPT_DIR)")
    admits = lineage.admission(root)
    names = [entry.name for entry in root.iterdir() if entry.name.startswith("step")]
    reports = [report for name in names if (report := _report(root, name, admits))]
    reports.sort(key=lambda report: (report.step is None, -(report.step or 0), report.path))
    return reports + _staged(root)


def _report(root: Path, name: str, admits: Admits) -> StepReport | None:
    step = parse_step_name(name)
    if step is None:
        return StepReport(name, None, Kind.FOREIGN, "is not the name of a step (step-000040)")
    try:
        found = load(root, step, admits)
    except FileNotFoundError:
        return None
    if not isinstance(found, Resume):
        return StepReport(name, step, found.kind, found.reason, found.part)
    known = validation(root, found.manifest)
    loaded = ", and a run has loaded it (restore_verified)" if known == "restore_verified" else ""
    return StepReport(
        name,
        step,
        Kind.VALID,
        f"every part hashes to its manifest{loaded}",
        manifest_id=found.manifest.manifest_id,
        attempt_id=found.manifest.attempt_id,
        size_bytes=sum(part.size_bytes for part in found.manifest.parts),
        validation=known,
    )


def _staged(root: Path) -> list[StepReport]:
    reports = []
    for path in sorted((root / STAGING).glob("*/step-*")):
        parts = len(os.listdir(path)) if path.is_dir() else 0  # noqa: PTH208 (only counted)
        reports.append(
            StepReport(
                str(path.relative_to(root)),
                parse_step_name(path.name),
                Kind.TORN,
                f"was never committed; {parts} files staged",
                attempt_id=path.parent.name,
            )
        )
    return reports
