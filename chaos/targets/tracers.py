"""strace beside a container of the run, on processes that already run.

It runs in a helper container that sees the host's processes, ends by itself after LONGEST_S, and
lets its processes go on when it ends, in whatever way (ptrace(2): tracees are resumed).
"""

import time
from typing import Any

from docker import DockerClient
from docker.errors import NotFound

from chaos.model import CannotRun, Container, JsonMap, NoTarget
from chaos.ports.processes import Processes
from chaos.ports.tracers import Injection
from chaos.syscalls_trace import CHANGES, Syscall, parse
from chaos.targets.containers import RunContainers
from chaos.targets.engine import ROLE_KEY, UndoAction, by_labels, explained, run_labels
from chaos.targets.helper import UNCONFINED, helper_image
from chaos.targets.images import await_line, file_in

ROLE = "tracer-"
LONGEST_S = 120
TRACE = "/trace"
RIGHTS = {
    "user": "0:0",
    "pid_mode": "host",
    "network_mode": "none",
    "cap_drop": ["ALL"],
    "cap_add": ["SYS_PTRACE", "DAC_READ_SEARCH"],
    "security_opt": ["no-new-privileges", *UNCONFINED],
    "mem_limit": "256m",
    "pids_limit": 64,
}


class EngineTracers:
    """Tracers that carry the labels of one run."""

    def __init__(
        self,
        client: DockerClient,
        run_id: str,
        containers: RunContainers,
        processes: Processes,
    ) -> None:
        self._client = client
        self._run_id = run_id
        self._containers = containers
        self._processes = processes

    def attach(
        self, container: Container, name: str, injection: Injection, *, inner: bool = False
    ) -> int:
        """Disturb a container's first process, or with `inner` those that it has started."""
        self._containers.refuse_foreign(container)
        found = self._processes.listing(container)
        pids = [each.pid for each in (found[1:] if inner else found[:1])]
        if not pids:
            raise NoTarget(f"{container.service} has no process to trace")
        image = helper_image()
        with explained(f"trace of {container.service}"):
            tracer = self._client.containers.create(
                image,
                command=_words(pids, injection),
                entrypoint=[],
                labels=run_labels(self._run_id) | {ROLE_KEY: ROLE + name},
                **RIGHTS,
            )
            tracer.start()
            await_line(tracer, "attached")
        return time.monotonic_ns()

    def calls(self, name: str) -> tuple[Syscall, ...]:
        """Return the calls that were traced so far."""
        for found in _found(self._client, self._run_id, name):
            try:
                trace = file_in(found, TRACE)
            except (CannotRun, NotFound):
                continue
            return parse(trace.decode("utf-8", "replace"))
        return ()

    def detach(self, name: str) -> None:
        """Remove the tracer."""
        _detach(self._client, self._run_id, {"name": name})


def _words(pids: list[int], injection: Injection) -> list[str]:
    names = {*CHANGES.split(","), *injection.calls.split(",")}
    traced = ",".join(f"?{name}" for name in sorted(names))
    words = ["timeout", "--foreground", "--signal=INT", str(LONGEST_S)]
    words += ["strace", "-f", "-y", "-ttt", "-s", "16", "-e", f"trace={traced}"]
    words += ["-P", injection.path] if injection.path else []
    words += ["-e", f"inject={injection.calls}:{injection.what}:when={injection.when}"]
    return [*words, "-o", TRACE, *(word for pid in pids for word in ("-p", str(pid)))]


def _found(client: DockerClient, run_id: str, name: str) -> list[Any]:
    with explained("look for a tracer"):
        filters = by_labels(run_id, {ROLE_KEY: ROLE + name})
        return list(client.containers.list(all=True, filters=filters, ignore_removed=True))


def _detach(client: DockerClient, run_id: str, args: JsonMap) -> None:
    for found in _found(client, run_id, str(args["name"])):
        try:
            with explained("removal of a tracer"):
                found.stop(timeout=2)
                found.remove(force=True)
        except NotFound:
            continue


UNDOS: dict[str, UndoAction] = {"detach_tracer": _detach}
