"""The machine as a whole: images, worlds, undos and audits, found by label alone.

Nothing here needs the process that made a run, so all of it works after that one was killed.
"""

import os
import shutil
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import cached_property
from pathlib import Path
from typing import Any

from docker import DockerClient
from docker.errors import APIError, ImageNotFound, NotFound

from chaos.model import Audit, CannotRun, Undo, UsageError
from chaos.ports import RunSpec, World
from chaos.ports.images import DiskImages
from chaos.ports.syscalls import Syscalls
from chaos.targets import command
from chaos.targets.clocks import UNDOS as CLOCK_UNDOS
from chaos.targets.clocks import RunClocks
from chaos.targets.containers import COORDINATOR, RunContainers
from chaos.targets.containers import UNDOS as CONTAINER_UNDOS
from chaos.targets.disks import UNDOS as DISK_UNDOS
from chaos.targets.disks import VolumeDisks, disk_helpers
from chaos.targets.engine import RUN_KEY, UndoAction, by_labels, connect, explained
from chaos.targets.helper import Helper, helper_image
from chaos.targets.images import UNDOS as POWER_UNDOS
from chaos.targets.images import EngineImages
from chaos.targets.logs import EngineLogs
from chaos.targets.packets import UNDOS as PACKET_UNDOS
from chaos.targets.packets import NamespacePackets, chains_left, living
from chaos.targets.processes import UNDOS as PROCESS_UNDOS
from chaos.targets.processes import RunProcesses
from chaos.targets.proxies import SERVICE as TOXIPROXY
from chaos.targets.proxies import UNDOS as PROXY_UNDOS
from chaos.targets.proxies import ProxyNetwork, server_of
from chaos.targets.runtime import CoordinatorRuntime
from chaos.targets.signs import EngineSigns
from chaos.targets.stack import ROOT, ComposeStack, Project
from chaos.targets.syscalls import EngineSyscalls
from chaos.targets.tracers import UNDOS as TRACER_UNDOS
from chaos.targets.tracers import EngineTracers
from chaos.targets.volumes import VolumeFiles

MIN_FREE_BYTES = 1 << 30
BUILD_TIMEOUT_S = 120.0
REMOVAL_PASSES = 5
PAYLOADS = ROOT / "chaos" / "payloads"
PLANTED = "planted_"
UNDOS: Mapping[str, UndoAction] = {
    **CONTAINER_UNDOS,
    **PROXY_UNDOS,
    **DISK_UNDOS,
    **PROCESS_UNDOS,
    **CLOCK_UNDOS,
    **PACKET_UNDOS,
    **POWER_UNDOS,
    **TRACER_UNDOS,
}
"""What each adapter can put right again, besides the removal of the whole stack."""
STANDING_STACK = "stack"
"""Value of the run label where the stack was started by hand: never part of a chaos run."""


class DockerMachine:
    """A machine with a Docker engine; it is asked for when it is first needed."""

    @cached_property
    def _client(self) -> DockerClient:
        return connect()

    def images(self, planted: str | None) -> Mapping[str, str]:
        """Return image name -> digest of all that a run needs; CannotRun says what is missing."""
        _check_disk(self._client.info().get("DockerRootDir", "/"))
        names = [*_images().values()]
        digests = {name: self._digest(name) for name in names}
        if planted is not None:
            _build_planted(planted)
            digests[_planted_image(planted)] = self._digest(_planted_image(planted))
        return digests

    def world(self, spec: RunSpec) -> World:
        """Return the adapters for one run; starts nothing."""
        containers = RunContainers(self._client, spec.run_id)
        helper = Helper(self._client, spec.run_id)
        network = ProxyNetwork(server_of(containers), helper)
        runtime = CoordinatorRuntime(
            lambda: f"http://127.0.0.1:{containers.published(COORDINATOR, 8000)}",
            lambda: f"http://127.0.0.1:{containers.published(TOXIPROXY, 8100)}",
        )
        images = _images()
        if spec.planted is not None:
            images["FLASHML_RUNTIME_IMAGE"] = _planted_image(spec.planted)
        project = Project(spec.run_id, spec.workers, images, spec.limits_mib, spec.variants)
        processes = RunProcesses(self._client, spec.run_id, containers, helper)
        touching, remounting = disk_helpers(self._client, spec.run_id)
        holding = (helper, touching) if spec.limits_mib else (helper,)
        return World(
            stack=ComposeStack(containers, network, runtime, holding, project),
            containers=containers,
            network=network,
            files=VolumeFiles(helper),
            runtime=runtime,
            disks=VolumeDisks(touching, remounting),
            processes=processes,
            clocks=RunClocks(self._client, spec.run_id, containers),
            packets=NamespacePackets(self._client, spec.run_id, network),
            logs=EngineLogs(self._client, containers),
            images=self.disk_images(spec.run_id, spec.planted),
            signs=EngineSigns(self._client, containers, helper),
            tracers=EngineTracers(self._client, spec.run_id, containers, processes),
        )

    def disk_images(self, run_id: str, planted: str | None) -> DiskImages:
        """Return what records and judges power losses, with these labels; starts nothing."""
        runtime = _planted_image(planted) if planted else _images()["FLASHML_RUNTIME_IMAGE"]
        return EngineImages(self._client, run_id, runtime)

    def syscalls(self, run_id: str, planted: str | None) -> Syscalls:
        """Return what traces saves and disturbs them, with these labels; starts nothing."""
        runtime = _planted_image(planted) if planted else _images()["FLASHML_RUNTIME_IMAGE"]
        return EngineSyscalls(self._client, run_id, runtime)

    def runs(self) -> tuple[str, ...]:
        """Return the run ids found on labelled containers, networks and volumes."""
        return tuple(sorted({run_id for run_id in self._run_labels() if run_id != STANDING_STACK}))

    def undo(self, undo: Undo) -> None:
        """Carry out one undo and verify it; a missing object is fine."""
        if undo.action == "stack_down":
            self._stack_down(undo.run_id)
        elif undo.action in UNDOS:
            UNDOS[undo.action](self._client, undo.run_id, undo.args)
        else:
            raise CannotRun(f"undo {undo.undo_id}: no such action {undo.action!r}")

    def audit(self, run_id: str) -> Audit:
        """Return what is left of a run."""
        containers = self._containers(run_id)
        return Audit(
            containers=tuple(sorted(str(c.name) for c in containers)),
            networks=tuple(sorted(str(n.name) for n in self._networks(run_id))),
            volumes=tuple(sorted(str(v.name) for v in self._volumes(run_id))),
            toxics=self._toxics_left(run_id, containers),
            paused=tuple(sorted(str(c.name) for c in containers if c.status == "paused")),
            chains=chains_left(self._client, run_id, living(self._client, run_id)),
        )

    def _digest(self, name: str) -> str:
        try:
            with explained(f"look at image {name}"):
                return str(self._client.images.get(name).id)
        except ImageNotFound as error:
            raise CannotRun(
                f"image {name} is missing: run `make chaos` (or `make up`), which builds it"
            ) from error

    def _run_labels(self) -> Iterable[str]:
        for found in self._containers(None):
            yield found.labels[RUN_KEY]
        for kind in (self._networks(None), self._volumes(None)):
            for found in kind:
                yield found.attrs["Labels"][RUN_KEY]

    def _containers(self, run_id: str | None) -> list[Any]:
        filters = by_labels(run_id)
        with explained("list of containers"):
            return list(
                self._client.containers.list(all=True, filters=filters, ignore_removed=True)
            )

    def _networks(self, run_id: str | None) -> list[Any]:
        with explained("list of networks"):
            return list(self._client.networks.list(filters=by_labels(run_id)))

    def _volumes(self, run_id: str | None) -> list[Any]:
        with explained("list of volumes"):
            return list(self._client.volumes.list(filters=by_labels(run_id)))

    def _toxics_left(self, run_id: str, containers: list[Any]) -> tuple[str, ...]:
        if not any(c.status == "running" and c.name.find(TOXIPROXY) >= 0 for c in containers):
            return ()
        toxics = server_of(RunContainers(self._client, run_id)).toxics()
        return tuple(f"{name}/{t.name}" for name, found in sorted(toxics.items()) for t in found)

    def _stack_down(self, run_id: str) -> None:
        """Remove all that carries the run's label, again where a dying `compose up` adds to it."""
        if run_id == STANDING_STACK:
            raise CannotRun("the stack of `make up` is no chaos run; stop it with `make down`")
        for _ in range(REMOVAL_PASSES):
            if not self._remove_pass(run_id):
                return
        left = self.audit(run_id)
        raise CannotRun(f"run {run_id} is still there: {left}")

    def _remove_pass(self, run_id: str) -> bool:
        """Remove what there is; return whether there was anything."""
        containers = self._containers(run_id)
        with ThreadPoolExecutor(max_workers=8) as pool:
            list(pool.map(lambda c: _removed(lambda: c.remove(force=True, v=True)), containers))
        rest = [*self._networks(run_id), *self._volumes(run_id)]
        for found in rest:
            _removed(found.remove)
        return bool(containers or rest)


def _images() -> dict[str, str]:
    """Return the variables that name the images of the stack, with their defaults."""
    defaults = {
        "FLASHML_RUNTIME_IMAGE": "flashruntime/runtime:local",
        "FLASHML_TOXIPROXY_IMAGE": "flashruntime/toxiproxy:local",
        "FLASHML_HELPER_IMAGE": helper_image(),
    }
    return {variable: os.environ.get(variable) or name for variable, name in defaults.items()}


def _removed(remove: Callable[[], object]) -> None:
    """Remove one object; what is gone, or is going, is fine: the next pass looks again."""
    try:
        remove()
    except NotFound:
        return
    except APIError as error:
        if error.status_code not in {403, 409}:
            raise CannotRun(f"removal: the engine says: {error.explanation}") from error


def _check_disk(engine_root: str) -> None:
    """Raise CannotRun where the disk of the engine or of the run directories is nearly full."""
    for folder in (Path(engine_root), Path.cwd()):
        if not folder.exists():
            continue
        free_bytes = shutil.disk_usage(folder).free
        if free_bytes < MIN_FREE_BYTES:
            raise CannotRun(
                f"the disk of {folder} has {free_bytes >> 20} MiB left, a run needs "
                f"{MIN_FREE_BYTES >> 20}: make room (`docker system df` shows what images take)"
            )


def _planted_image(planted: str) -> str:
    return f"flashruntime/planted-{planted.replace('_', '-')}:local"


def _build_planted(planted: str) -> None:
    """Build the runtime with one bug planted into it."""
    if not (PAYLOADS / f"{PLANTED}{planted}.py").is_file():
        known = sorted(path.stem.removeprefix(PLANTED) for path in PAYLOADS.glob(f"{PLANTED}*.py"))
        raise UsageError(f"there is no planted build {planted!r}; known: {', '.join(known)}")
    base = _images()["FLASHML_RUNTIME_IMAGE"]
    words = ["build", "--quiet", "--tag", _planted_image(planted)]
    words += ["--build-arg", f"RUNTIME_IMAGE={base}", "--build-arg", f"PLANT={planted}"]
    words += ["--file", str(ROOT / "docker" / "planted.Dockerfile"), str(ROOT)]
    ended = command.run(words, {}, BUILD_TIMEOUT_S)
    if ended.exit_code != 0:
        raise CannotRun(f"the planted build {planted} was not made: {ended.last_words}")
