"""Saves recorded in the runtime's own image, and volumes judged there after a power loss.

A recorder waits until strace, in a container that shares its processes, is attached. Judges get the
states as files. Disk images are made by the helper image and mounted in a container of the runtime.
"""

import hashlib
import io
import json
import tarfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from docker import DockerClient
from docker.errors import ImageNotFound, NotFound
from pydantic import BaseModel, TypeAdapter, ValidationError

from chaos.model import CannotRun, JsonMap
from chaos.ports.images import Mounted, Recording
from chaos.powerloss.bundle import archive, unpacked
from chaos.powerloss.rules import Judged
from chaos.powerloss.trace import CALLS
from chaos.targets.engine import ROLE_KEY, UndoAction, by_labels, explained, run_labels
from chaos.targets.helper import UNCONFINED, helper_image

ROOT = "/var/lib/flashruntime/checkpoints"
CODE = "/code"
ROLE = "power-"
PAYLOADS = Path(__file__).parents[1] / "payloads"
STRING_BYTES = 16 << 20
ACT_S, JUDGE_S = 60.0, 1800.0
MEBIBYTES = 24
MAKE = "mke2fs -q -t ext4 -E root_owner=10001:10001 -d /volumes/{0}/volume /volumes/{0}.ext4 {1}m"
LOOP_DEVICES = ["b 7:* rwm", "c 10:237 rwm"]


class Row(BaseModel):
    """What a judge writes of one state."""

    index: int
    usable: bool
    items: dict[str, str]
    detail: str


_ROWS = TypeAdapter(list[Row])


@dataclass(frozen=True, slots=True)
class Shape:
    """What a container of this module is, and may do, beyond nothing."""

    role: str
    image: str
    command: list[str]
    rights: dict[str, Any] = field(default_factory=dict)
    files: tuple[bytes, ...] = ()


class EngineImages:
    """Records and judges in containers of one run."""

    def __init__(self, client: DockerClient, run_id: str, runtime_image: str) -> None:
        self._client = client
        self._run_id = run_id
        self._image = runtime_image

    def record(self, what: str) -> Recording:
        """Record one save; CannotRun where it does not end well."""
        with self._volume(what) as volume, explained(f"recording of {what}"):
            rights = {"volumes": [f"{volume}:{ROOT}:rw"]}
            with self._container(self._python(what, "record", ROOT, rights=rights)) as actor:
                await_line(actor, "chaos: ready")
                before = self._tree(actor)
                with self._container(_tracer(str(actor.id))) as tracer:
                    await_line(tracer, "attached")
                    actor.kill("SIGUSR1")
                    await_line(actor, "chaos: done")
                    tracer.kill("SIGINT")
                    tracer.wait(timeout=ACT_S)
                    trace = file_in(tracer, "/trace").decode("latin-1")
                return Recording(ROOT, before, self._tree(actor), trace)

    def judge(self, what: str, bundle: bytes) -> tuple[Judged, ...]:
        """Judge each state of a bundle on a volume of its own, in order."""
        rights = {"tmpfs": {"/scratch": "mode=1777"}}
        shape = self._python(what, "judge", "/bundle", "/scratch", rights=rights, files=(bundle,))
        with explained(f"judge of {what}"), self._container(shape) as judge:
            await_end(judge)
            return _judged(file_in(judge, "/bundle/outcomes.json"))

    def mount(self, what: str, volumes: Sequence[bytes]) -> tuple[Mounted, ...]:
        """Judge each volume (a tar archive of `volume/`) on a file system of its own."""
        if not volumes:
            return ()
        with explained(f"disk images of {what}"):
            images = self._made(volumes)
            names = {f"images/{index}.ext4": data for index, data in enumerate(images)}
            files = archive({"images": None, **names}, 0)
            command = ["python", "-m", "chaos.payloads.power_mount", _module(what)]
            command += [f"/{name}" for name in names]
            rights = {
                "user": "0:0",
                "cap_add": ["SYS_ADMIN", "MKNOD", "SETUID", "SETGID"],
                "device_cgroup_rules": LOOP_DEVICES,
                "security_opt": [*UNCONFINED, "apparmor=unconfined"],
            }
            shape = Shape(f"{ROLE}mount", self._image, command, rights, (_code(), files))
            with self._container(shape) as judge:
                await_end(judge)
                found = _judged(file_in(judge, "/images/outcomes.json"))
        pairs = zip(images, found, strict=True)
        return tuple(Mounted(hashlib.sha256(data).hexdigest(), judged) for data, judged in pairs)

    def _made(self, volumes: Sequence[bytes]) -> list[bytes]:
        """Return a disk image with the files of each volume."""
        commands = [MAKE.format(index, MEBIBYTES) for index in range(len(volumes))]
        shape = Shape(f"{ROLE}mkfs", helper_image(), ["sh", "-ec", "\n".join(commands)])
        rights = {"user": "0:0", "cap_add": ["DAC_OVERRIDE"]}
        files = tuple(_below(f"volumes/{index}", data) for index, data in enumerate(volumes))
        with self._container(Shape(shape.role, shape.image, shape.command, rights, files)) as maker:
            await_end(maker)
            return [file_in(maker, f"/volumes/{index}.ext4") for index in range(len(volumes))]

    def _tree(self, container: Any) -> Mapping[str, bytes | None]:
        stream, _ = container.get_archive(ROOT)
        return unpacked(stream, ROOT.rpartition("/")[2])

    def _python(
        self, what: str, *words: str, rights: dict[str, Any], files: tuple[bytes, ...] = ()
    ) -> Shape:
        command = ["python", "-m", _module(what), *words]
        return Shape(f"{ROLE}{words[0]}", self._image, command, rights, (_code(), *files))

    @contextmanager
    def _volume(self, what: str) -> Iterator[str]:
        name = f"{self._run_id}_{ROLE}{what}"
        found = self._client.volumes.create(name, labels=run_labels(self._run_id))
        try:
            yield name
        finally:
            found.remove(force=True)

    @contextmanager
    def _container(self, shape: Shape) -> Iterator[Any]:
        """Run a container, and remove it on the way out; its label does where we are killed."""
        try:
            found = self._client.containers.create(
                shape.image,
                command=shape.command,
                entrypoint=[],
                environment={"PYTHONPATH": CODE},
                labels=run_labels(self._run_id) | {ROLE_KEY: shape.role},
                cap_drop=["ALL"],
                mem_limit="1g",
                pids_limit=128,
                **{"network_mode": "none", "security_opt": ["no-new-privileges"], **shape.rights},
            )
        except ImageNotFound as error:
            raise CannotRun(f"image {shape.image} is missing; `make chaos` builds it") from error
        try:
            for data in shape.files:
                found.put_archive("/", data)
            found.start()
            yield found
        finally:
            found.remove(force=True, v=True)


def _remove_power(client: DockerClient, run_id: str, _args: JsonMap) -> None:
    """Remove what a power loss made beside the stack; what is gone is fine."""
    with explained("removal of recorders and judges"):
        filters = by_labels(run_id)
        for found in client.containers.list(all=True, filters=filters, ignore_removed=True):
            if found.labels.get(ROLE_KEY, "").startswith(ROLE):
                with suppress(NotFound):
                    found.remove(force=True, v=True)
        for volume in client.volumes.list(filters=filters):
            if str(volume.name).startswith(f"{run_id}_{ROLE}"):
                with suppress(NotFound):
                    volume.remove(force=True)


UNDOS: dict[str, UndoAction] = {"remove_power": _remove_power}


def _tracer(actor_id: str) -> Shape:
    calls = ",".join(f"?{name}" for name in CALLS.split(","))
    command = ["strace", "-f", "-y", "-xx", "-s", str(STRING_BYTES), "-e", f"trace={calls}"]
    rights = {
        "user": "0:0",
        "pid_mode": f"container:{actor_id}",
        "cap_add": ["SYS_PTRACE", "DAC_READ_SEARCH"],
        "security_opt": ["no-new-privileges", *UNCONFINED],
    }
    return Shape(f"{ROLE}trace", helper_image(), [*command, "-o", "/trace", "-p", "1"], rights)


def _module(what: str) -> str:
    return f"chaos.payloads.power_{what}"


def _code() -> bytes:
    """Return a tar archive of the scripts as they lie in the container."""
    names = {f"{CODE[1:]}/chaos/payloads/{path.name}": path for path in PAYLOADS.glob("power_*.py")}
    folders = dict.fromkeys((CODE[1:], f"{CODE[1:]}/chaos", f"{CODE[1:]}/chaos/payloads"))
    return archive({**folders, **{name: path.read_bytes() for name, path in names.items()}}, 0)


def _below(folder: str, data: bytes) -> bytes:
    """Return a tar archive whose entries lie below `folder`."""
    stream = io.BytesIO()
    with (
        tarfile.open(fileobj=io.BytesIO(data)) as given,
        tarfile.open(fileobj=stream, mode="w") as tar,
    ):
        for member in given:
            content = given.extractfile(member) if member.isreg() else None
            member.name = f"{folder}/{member.name}"
            tar.addfile(member, content)
    return stream.getvalue()


def await_line(container: Any, words: str) -> None:
    """Wait until a container has said this; CannotRun where it ends without."""
    said = b""
    for piece in container.logs(stream=True, follow=True):
        said += piece
        if words.encode() in said:
            return
    raise CannotRun(f"{container.name} ended early: {_last(said)}")


def await_end(container: Any) -> None:
    """Wait until a container has ended; CannotRun where that is not well."""
    status = int(container.wait(timeout=JUDGE_S)["StatusCode"])
    if status:
        raise CannotRun(f"{container.name} ended with {status}: {_last(container.logs(tail=5))}")


def _last(said: bytes) -> str:
    return " | ".join(said.decode("utf-8", "replace").strip().splitlines()[-3:]) or "no word"


def file_in(container: Any, path: str) -> bytes:
    """Return a file of a container, running or not."""
    try:
        stream, _ = container.get_archive(path)
    except NotFound as error:
        raise CannotRun(f"{container.name} left no {path}") from error
    with tarfile.open(fileobj=io.BytesIO(b"".join(stream))) as tar:
        content = tar.extractfile(tar.getmembers()[0])
        return content.read() if content else b""


def _judged(data: bytes) -> tuple[Judged, ...]:
    try:
        rows = _ROWS.validate_python(json.loads(data))
    except (ValueError, ValidationError) as error:
        raise CannotRun(f"the judge's answer makes no sense: {error}") from error
    return tuple(Judged(row.usable, row.items, row.detail) for row in rows)
