"""The helper container of a run: the harness's hands inside its network and its volumes.

It has no capability, no way out and nobody's secrets: the checkpoint volume (mounted twice, for
looking and for touching) and the network of the workers. Scripts of `inside/` run in it.
"""

import json
import os
from collections.abc import Generator
from contextlib import closing
from pathlib import Path
from typing import TypeVar

from docker import DockerClient
from docker.errors import ImageNotFound, NotFound
from pydantic import BaseModel

from chaos.model import CannotRun, JsonMap
from chaos.targets.engine import by_labels, explained, run_labels

Answer = TypeVar("Answer", bound=BaseModel)

READ_ONLY = "/look"
WRITABLE = "/touch"
ROLE_KEY = "dev.flashruntime.role"
IDLE = "import signal; signal.sigwait({signal.SIGTERM, signal.SIGINT})"
USER = "10001:10001"
VOLUME = "checkpoints"
NETWORK = "edge"


def helper_image() -> str:
    """Return the name of the helper image."""
    return os.environ.get("FLASHML_HELPER_IMAGE", "flashruntime/helper:local")


class Helper:
    """The helper container of one run, made when it is first needed."""

    def __init__(self, client: DockerClient, run_id: str) -> None:
        self._client = client
        self._run_id = run_id
        self._container_id: str | None = None

    def start(self) -> None:
        """Start the container unless it runs; raise CannotRun where it cannot."""
        if self._container_id is None:
            self._container_id = self._find() or self._create()

    def run(self, script: str, request: JsonMap, answer: type[Answer]) -> Answer:
        """Run a script and return the one JSON object that it prints."""
        answers = list(self.lines(script, request, answer))
        if len(answers) != 1:
            raise CannotRun(f"helper script {script} gave {len(answers)} answers, not one")
        return answers[0]

    def lines(
        self, script: str, request: JsonMap, answer: type[Answer]
    ) -> Generator[Answer, None, None]:
        """Run a script and yield each JSON object as it is printed."""
        self.start()
        source = (Path(__file__).parent / "inside" / f"{script}.py").read_text(encoding="utf-8")
        command = ["python3", "-I", "-c", source, json.dumps(request, allow_nan=False)]
        api = self._client.api
        errors, pending = b"", b""
        with explained(f"helper script {script}"):
            exec_id = api.exec_create(self._container_id, command)["Id"]
            with closing(api.exec_start(exec_id, stream=True, demux=True)) as output:
                for out, err in output:
                    errors += err or b""
                    *complete, pending = (pending + (out or b"")).split(b"\n")
                    yield from map(answer.model_validate_json, complete)
            code = api.exec_inspect(exec_id)["ExitCode"]
        if code != 0:
            last = (errors.decode(errors="replace").strip().splitlines() or ["no message"])[-1]
            raise CannotRun(f"helper script {script} ended with {code}: {last}")

    def _find(self) -> str | None:
        found = self._client.api.containers(filters=by_labels(self._run_id, {ROLE_KEY: "helper"}))
        return str(found[0]["Id"]) if found else None

    def _create(self) -> str:
        image = helper_image()
        volume = self._composed("volume", VOLUME)
        network = self._composed("network", NETWORK)
        try:
            with explained("start of the helper container"):
                container = self._client.containers.run(
                    image,
                    command=["python3", "-I", "-c", IDLE],
                    entrypoint=[],
                    detach=True,
                    user=USER,
                    init=True,
                    network=network,
                    volumes=[f"{volume}:{READ_ONLY}:ro", f"{volume}:{WRITABLE}:rw"],
                    labels=run_labels(self._run_id) | {ROLE_KEY: "helper"},
                    cap_drop=["ALL"],
                    security_opt=["no-new-privileges"],
                    mem_limit="512m",
                    pids_limit=64,
                )
        except ImageNotFound as error:
            raise CannotRun(f"image {image} is missing; build it with `make chaos`") from error
        except NotFound as error:
            raise CannotRun(f"the helper container cannot start: {error.explanation}") from error
        return str(container.id)

    def _composed(self, kind: str, name: str) -> str:
        """Return the full name of a volume or network of the run's compose project."""
        listing = self._client.volumes if kind == "volume" else self._client.networks
        found = listing.list(filters=by_labels(self._run_id, {f"com.docker.compose.{kind}": name}))
        if len(found) != 1:
            raise CannotRun(f"run {self._run_id} has {len(found)} {kind}s called {name}, not one")
        return str(found[0].name)
