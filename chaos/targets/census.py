"""The processes of a run's workers, read in their own /proc by a process that ends at once."""

import json
from collections.abc import Mapping

from docker import DockerClient
from docker.models.containers import Container

from chaos.model import CannotRun
from chaos.targets.engine import SERVICE_KEY, by_labels, explained

WORKERS = "worker-"
LOOK = """
import json, os
found = []
for name in os.listdir("/proc"):
    if not name.isdigit() or int(name) == os.getpid():
        continue
    try:
        with open(f"/proc/{name}/cmdline", "rb") as stream:
            words = stream.read().rstrip(b"\\0").split(b"\\0")
    except OSError:
        continue
    if words != [b""]:
        found.append(b" ".join(words).decode("utf-8", "replace"))
print(json.dumps(found))
"""
MAX_CHARS = 300


class WorkerCensus:
    """Asks each worker's container of one run; a zombie has no command line and is left out."""

    def __init__(self, client: DockerClient, run_id: str) -> None:
        self._client = client
        self._run_id = run_id

    def processes(self) -> Mapping[str, tuple[str, ...]]:
        """Return worker service -> the command line of each process, cut to MAX_CHARS."""
        with explained("list of containers"):
            found = self._client.containers.list(filters=by_labels(self._run_id))
        services = {str(each.labels.get(SERVICE_KEY, "")): each for each in found}
        return {
            name: self._of(name, services[name])
            for name in sorted(services)
            if name.startswith(WORKERS)
        }

    @staticmethod
    def _of(name: str, container: Container) -> tuple[str, ...]:
        with explained(f"look at the processes of {name}"):
            ended = container.exec_run(["python3", "-ISc", LOOK])
        if ended.exit_code != 0:
            raise CannotRun(f"the processes of {name} cannot be read: {ended.output!r}")
        return tuple(str(command)[:MAX_CHARS] for command in json.loads(ended.output))
