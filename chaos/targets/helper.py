"""Helper containers of a run: the harness's hands inside its network, volumes and processes.

The first has no capability, no way out and nobody's secrets: the checkpoint volume (mounted twice,
for looking and for touching) and the network of the workers. One that needs more says so in its
`Reach`, and gets no more than that. The modules of `inside/` run there, in processes that stay up,
because starting one takes longer than what it is asked.
"""

import io
import json
import os
import selectors
import subprocess
import tarfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from docker import DockerClient
from docker.errors import ImageNotFound, NotFound
from pydantic import BaseModel

from chaos.model import CannotRun, JsonMap
from chaos.targets.engine import ROLE_KEY, by_labels, explained, run_labels

READ_ONLY = "/look"
WRITABLE = "/touch"
USER = "10001:10001"
VOLUME = "checkpoints"
NETWORK = "edge"
TOOLS = "/tools"
PACKAGE = "chaos/targets/inside"
IDLE = "import signal; signal.sigwait({signal.SIGTERM, signal.SIGINT})"
SERVE = (
    f"import sys; sys.path.insert(0, {TOOLS!r}); "
    "from chaos.targets.inside.serve import main; main()"
)
ANSWER_S = 20.0
UNCONFINED = ("seccomp=unconfined",)
Answer = TypeVar("Answer", bound=BaseModel)


def helper_image() -> str:
    """Return the name of the helper image."""
    return os.environ.get("FLASHML_HELPER_IMAGE") or "flashruntime/helper:local"


@dataclass(frozen=True, slots=True)
class Reach:
    """What a helper container may do and see, beyond nothing.

    `volumes` are names of the compose project, each mounted at its read-only and its writable
    place. `network` is a network of the project, "container:ID" for that of a target, or "none".
    """

    volumes: tuple[tuple[str, str, str], ...] = ((VOLUME, READ_ONLY, WRITABLE),)
    network: str = NETWORK
    user: str = USER
    host_processes: bool = False
    capabilities: tuple[str, ...] = ()
    any_syscall: bool = False


class Helper:
    """A helper container of one run, told apart by its role; threads may share it."""

    def __init__(
        self, client: DockerClient, run_id: str, role: str = "helper", reach: Reach | None = None
    ) -> None:
        self._client = client
        self._run_id = run_id
        self._role = role
        self._reach = reach or Reach()
        self._lock = threading.Lock()
        self._container_id: str | None = None
        self._idle: list[Session] = []

    def start(self) -> str:
        """Start the container unless it runs, and return its id; CannotRun where it cannot."""
        with self._lock:
            if self._container_id is None:
                self._container_id = self._find() or self._create()
            return self._container_id

    def run(
        self, script: str, request: JsonMap, answer: type[Answer], timeout_s: float = ANSWER_S
    ) -> Answer:
        """Ask a script; raise CannotRun where it fails or gives no answer in time."""
        with self._session() as session:
            reply = session.ask({"script": script, "request": dict(request)}, timeout_s)
        if "error" in reply:
            raise CannotRun(f"helper script {script}: {reply['error']}")
        return answer.model_validate(reply["answer"])

    @contextmanager
    def _session(self) -> Iterator["Session"]:
        """Lend a process that nobody else uses; one that failed is not used again."""
        container_id = self.start()
        with self._lock:
            session = self._idle.pop() if self._idle else None
        session = session or Session(container_id)
        try:
            yield session
        except BaseException:
            session.close()
            raise
        with self._lock:
            self._idle.append(session)

    def _find(self) -> str | None:
        filters = by_labels(self._run_id, {ROLE_KEY: self._role})
        with explained("look for the helper container"):
            found = self._client.api.containers(filters=filters)
        return str(found[0]["Id"]) if found else None

    def _create(self) -> str:
        image, reach = helper_image(), self._reach
        places = [
            f"{self._composed('volume', name)}:{place}:{mode}"
            for name, *paths in reach.volumes
            for place, mode in zip(paths, ("ro", "rw"), strict=True)
        ]
        try:
            with explained(f"start of the {self._role} container"):
                container = self._client.containers.create(
                    image,
                    command=["python3", "-I", "-c", IDLE],
                    entrypoint=[],
                    user=reach.user,
                    init=True,
                    **self._network(reach.network),
                    pid_mode="host" if reach.host_processes else None,
                    volumes=places,
                    labels=run_labels(self._run_id) | {ROLE_KEY: self._role},
                    cap_drop=["ALL"],
                    cap_add=[*reach.capabilities],
                    security_opt=["no-new-privileges", *_lifted(reach)],
                    mem_limit="512m",
                    pids_limit=64,
                )
                container.put_archive("/", _tools())
                container.start()
        except ImageNotFound as error:
            raise CannotRun(f"image {image} is missing; build it with `make chaos`") from error
        except NotFound as error:
            raise CannotRun(
                f"the {self._role} container cannot start: {error.explanation}"
            ) from error
        return str(container.id)

    def _network(self, name: str) -> dict[str, str]:
        if name == "none" or name.startswith("container:"):
            return {"network_mode": name}
        return {"network": self._composed("network", name)}

    def _composed(self, kind: str, name: str) -> str:
        """Return the full name of a volume or network of the run's compose project."""
        listing = self._client.volumes if kind == "volume" else self._client.networks
        found = listing.list(filters=by_labels(self._run_id, {f"com.docker.compose.{kind}": name}))
        if len(found) != 1:
            raise CannotRun(f"run {self._run_id} has {len(found)} {kind}s called {name}, not one")
        return str(found[0].name)


class Session:
    """A serving process in the container, asked over its standard input and output."""

    def __init__(self, container_id: str) -> None:
        command = ["docker", "exec", "--interactive", container_id, "python3", "-I", "-c", SERVE]
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
            bufsize=0,
        )

    def ask(self, call: dict[str, object], timeout_s: float) -> dict[str, object]:
        """Send one request and return its reply; CannotRun where none comes in time."""
        stdin = self._process.stdin
        try:
            if stdin is None:
                raise BrokenPipeError
            stdin.write(json.dumps(call, allow_nan=False).encode() + b"\n")
        except BrokenPipeError as error:
            raise CannotRun("the helper container does not listen; is it gone?") from error
        reply: dict[str, object] = json.loads(self._line(time.monotonic() + timeout_s))
        return reply

    def close(self) -> None:
        """End the process."""
        self._process.kill()
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                pipe.close()

    def _line(self, deadline: float) -> bytes:
        stdout, received = self._process.stdout, b""
        with selectors.DefaultSelector() as selector:
            if stdout is not None:
                selector.register(stdout, selectors.EVENT_READ)
            while stdout is not None and not received.endswith(b"\n"):
                if not selector.select(max(0.0, deadline - time.monotonic())):
                    raise CannotRun("the helper container gave no answer in time")
                block = os.read(stdout.fileno(), 1 << 16)
                if not block:
                    raise CannotRun("the helper container ended while it was asked")
                received += block
        return received


def _lifted(reach: Reach) -> list[str]:
    """Return which confinements are lifted: the engine's AppArmor profile forbids all mounts."""
    seccomp = UNCONFINED if reach.any_syscall else ()
    mounts = reach.any_syscall or "SYS_ADMIN" in reach.capabilities
    return [*seccomp, *(["apparmor=unconfined"] if mounts else [])]


def _tools() -> bytes:
    """Return a tar archive of `inside/` as it lies in the container."""
    archive = io.BytesIO()
    with tarfile.open(fileobj=archive, mode="w") as tar:
        for path in sorted((Path(__file__).parent / "inside").glob("*.py")):
            tar.add(path, arcname=f"{TOOLS[1:]}/{PACKAGE}/{path.name}")
    return archive.getvalue()
