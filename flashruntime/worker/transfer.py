"""Files of an attempt: inputs from the artifact store, outputs to it; symlinks never followed."""

import hashlib
import os
import stat
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from flashruntime.protocol.base import check_key
from flashruntime.protocol.jobs import InputFile, Outputs
from flashruntime.protocol.tasks import Lease, Metrics, OutputFile
from flashruntime.worker import events
from flashruntime.worker.control import AttemptControl
from flashruntime.worker.ports import Coordinator
from flashruntime.worker.progress import parse_metrics
from flashruntime.worker.workspace import Workspace

METRICS_NAME = "metrics.json"


@dataclass(frozen=True, slots=True)
class Placed:
    """An input as it was before the process started."""

    sha256: str
    signature: tuple[int, int, int]


@dataclass(frozen=True, slots=True)
class Collected:
    """Outputs that are there, and for each required one that is not, why."""

    found: dict[str, Path]
    problems: list[str]


def fetch_inputs(
    inputs: list[InputFile], workspace: Workspace, client: Coordinator, control: AttemptControl
) -> dict[str, Placed]:
    """Place the inputs in the working directory, verified; return what was placed.

    Raises NotFound, ArtifactCorrupt, InvalidInput and OSError; waits for the coordinator.
    """
    placed: dict[str, Placed] = {}
    for item in inputs:
        target = workspace.files / check_key(item.path)
        target.parent.mkdir(parents=True, exist_ok=True)
        if os.path.lexists(target):
            raise FileExistsError(f"two inputs have the path {item.path!r}")
        control.until_answered(partial(client.get_artifact, item.key, target, item.sha256))
        target.chmod(0o755 if item.executable else 0o644)
        placed[item.path] = Placed(item.sha256, _signature(target))
    return placed


def collect(outputs: Outputs, workspace: Workspace, placed: dict[str, Placed]) -> Collected:
    """Find the outputs: first in FLASHML_OUTPUT_DIR, then in the working directory.

    An input that the process left as it was is not an output.
    """
    found: dict[str, Path] = {}
    problems: list[str] = []
    for path in dict.fromkeys([*outputs.required, *outputs.optional]):
        place, why = _find(path, workspace, placed)
        if place is not None:
            found[path] = place
        elif path in outputs.required:
            problems.append(f"{path}: {why}")
    return Collected(found, problems)


def upload(
    collected: Collected, lease: Lease, client: Coordinator, control: AttemptControl
) -> list[OutputFile]:
    """Store the outputs under the lease's own prefix; raises Superseded if it is no longer ours."""
    stored: list[OutputFile] = []
    for path, source in collected.found.items():
        key = f"{lease.output_prefix}/{path}"
        record = control.until_answered(partial(client.put_artifact, key, source))
        stored.append(OutputFile(path=path, key=key, sha256=record.sha256))
    return stored


def read_metrics(
    workspace: Workspace, placed: dict[str, Placed]
) -> tuple[Metrics | None, list[str]]:
    """Return the metrics that this attempt has written, and warnings."""
    place, _ = _find(METRICS_NAME, workspace, placed)
    return (None, []) if place is None else parse_metrics(place)


def _find(path: str, workspace: Workspace, placed: dict[str, Placed]) -> tuple[Path | None, str]:
    check_key(path)
    why = "not found"
    for root in (workspace.output, workspace.files):
        problem = _problem(root, path)
        if problem is None and root == workspace.files and _is_unchanged(root, path, placed):
            problem = "an input that the process did not change"
        if problem is None:
            return root / path, ""
        why = problem if problem != "not found" else why
    return None, why


def _problem(root: Path, path: str) -> str | None:
    """Say why `path` below `root` is no output, None if it is one."""
    place = root.parent
    for segment in (root.name, *path.split("/")):
        place /= segment
        try:
            mode = place.lstat().st_mode
        except OSError as error:
            missing = isinstance(error, FileNotFoundError | NotADirectoryError)
            return "not found" if missing else str(error.strerror)
        if stat.S_ISLNK(mode):
            return (
                f"{place.relative_to(root.parent)} is a symbolic link, and links are not followed"
            )
    return None if stat.S_ISREG(mode) else "not a regular file; name files, not directories"


def _is_unchanged(root: Path, path: str, placed: dict[str, Placed]) -> bool:
    before = placed.get(path)
    if before is None or _signature(root / path) != before.signature:
        return False
    with (root / path).open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest() == before.sha256.lower()


def _signature(path: Path) -> tuple[int, int, int]:
    status = path.lstat()
    return status.st_ino, status.st_mtime_ns, status.st_size


def warn_in_log(workspace: Workspace, lease_id: str, warnings: list[str]) -> None:
    """Tell the user, in the attempt's own output, what was left out."""
    for text in warnings:
        events.warning("metrics_ignored", lease_id=lease_id, error=text)
    lines = "".join(f"[flashruntime] {text}\n" for text in warnings)
    flags = os.O_WRONLY | os.O_APPEND | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    with suppress(OSError), os.fdopen(os.open(workspace.log, flags), "ab") as file:
        file.write(lines.encode())
