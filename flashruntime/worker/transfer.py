"""Files of an attempt: inputs from the artifact store, outputs to it."""

import os
from contextlib import suppress
from functools import partial

from flashruntime.launch.outputs import Collected, Placed, signature
from flashruntime.protocol.base import check_key
from flashruntime.protocol.jobs import InputFile
from flashruntime.protocol.tasks import Lease, OutputFile
from flashruntime.worker import events
from flashruntime.worker.control import AttemptControl
from flashruntime.worker.ports import Coordinator
from flashruntime.worker.workspace import Workspace


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
        placed[item.path] = Placed(item.sha256, signature(target))
    return placed


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


def warn_in_log(workspace: Workspace, lease_id: str, warnings: list[str]) -> None:
    """Tell the user, in the attempt's own output, what was left out."""
    for text in warnings:
        events.warning("metrics_ignored", lease_id=lease_id, error=text)
    lines = "".join(f"[flashruntime] {text}\n" for text in warnings)
    flags = os.O_WRONLY | os.O_APPEND | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    with suppress(OSError), os.fdopen(os.open(workspace.log, flags), "ab") as file:
        file.write(lines.encode())
