"""Lines of logs and files of checkpoint trees, looked at through the engine and the helper."""

import time

from docker import DockerClient
from pydantic import BaseModel

from chaos.model import JsonMap
from chaos.ports.signs import Written
from chaos.targets.containers import RunContainers
from chaos.targets.engine import explained
from chaos.targets.helper import READ_ONLY, Helper
from chaos.targets.logs import NS, wall_ns

MOST = 5


class Found(BaseModel):
    """What inside/files.py answers."""

    paths: list[str]


class EngineSigns:
    """Asked for anew each time, and only for what came since."""

    def __init__(self, client: DockerClient, containers: RunContainers, helper: Helper) -> None:
        self._client = client
        self._containers = containers
        self._helper = helper

    def written(self, service: str, since_ns: int) -> tuple[Written, ...]:
        """Return what a service's container wrote from `since_ns` on, in order."""
        container = self._containers.service(service)
        offset_ns = time.monotonic_ns() - time.time_ns()
        since_s = (since_ns - offset_ns) / NS
        with explained(f"logs of {service}"):
            told = self._client.api.logs(
                container.container_id, timestamps=True, since=since_s, stream=False
            )
        lines = (line.partition(" ") for line in bytes(told).decode(errors="replace").splitlines())
        found = (Written(wall_ns(stamp) + offset_ns, text) for stamp, _, text in lines if stamp)
        return tuple(each for each in found if each.at_ns >= since_ns)

    def files(self, job_id: str, task_id: str, pattern: str) -> tuple[str, ...]:
        """Return the paths below a task's checkpoint tree that match a glob, a few at most."""
        return tuple(self._look(job_id, task_id, pattern=pattern, most=MOST))

    def parts_written(self, job_id: str, task_id: str, lease_id: str) -> bool:
        """Whether an attempt saves a step that has parts and no manifest yet."""
        staged = f".staging/{lease_id}/step-*"
        return bool(self._look(job_id, task_id, pattern=staged, most=1, lacking="manifest.json"))

    def _look(
        self, job_id: str, task_id: str, *, pattern: str, most: int, lacking: str | None = None
    ) -> list[str]:
        request: JsonMap = {
            "root": f"{READ_ONLY}/{job_id}/{task_id}",
            "pattern": pattern,
            "most": most,
            "lacking": lacking,
        }
        return self._helper.run("files", request, Found).paths
