"""SIGKILL of a worker's agent alone: its container lives, and what the agent started may too.

Only where the agent is not the container's first process (variant "supervised"): that one takes
everything with it.
"""

import time
from dataclasses import dataclass

from chaos.history import integer, text
from chaos.model import Container, JsonMap, Landed, NoTarget, Receipt
from chaos.ports import Scene
from chaos.ports.processes import Process, as_json, container_in

AGENT = "flashruntime work"
GONE_S = 15.0
LOOK_S = 0.1


@dataclass(frozen=True, slots=True)
class KillAgent:
    """Parameter `command`: words of the agent's command line, "flashruntime work" unless given.

    Landed where the agent is gone and its container was not started anew. The evidence tells how
    long what the agent had started lived on (`outlived_s`), and what was `left` at the end.
    """

    kind: str = "kill_agent"

    def undo(self, scene: Scene) -> tuple[tuple[str, JsonMap], ...]:
        """Start the container where it has ended; the agent is restarted by what runs above it."""
        return (("start_container", {"service": _container(scene).service}),)

    def fire(self, scene: Scene) -> JsonMap:
        """Kill the agent, and watch what it had started until it is gone."""
        target, container = scene.target(), _container(scene)
        processes = scene.world.processes
        before, found = processes.state(container), processes.listing(container)
        words = text(scene.action.params.get("command")) or AGENT
        agent = _agent(found, words, container)
        started = _below(found, agent.pid)
        at_ns = time.monotonic_ns()
        sent = processes.signal(container, agent.pid, "SIGKILL")
        left = _await_end(scene, container, {each.pid for each in started})
        return {
            **as_json(container),
            "node_id": target.node_id,
            "task_id": target.task_id,
            "lease_id": target.lease_id,
            "at_ns": at_ns,
            "started_at": before.started_at,
            "agent": agent.command,
            "agent_pid": agent.pid if sent else None,
            "had_started": [each.command for each in started],
            "outlived_s": round((time.monotonic_ns() - at_ns) / 1e9, 3),
            "left": [each.command for each in left],
        }

    def receipt(self, scene: Scene, fired: JsonMap) -> Receipt:
        """Look whether the agent is gone while its container went on."""
        container, processes = container_in(fired), scene.world.processes
        after = processes.state(container)
        is_gone = fired["agent_pid"] not in [each.pid for each in processes.listing(container)]
        went_on = after.running and after.started_at == fired["started_at"]
        sent = fired["agent_pid"] is not None
        landed = Landed.LANDED if sent and is_gone and went_on else Landed.MISSED
        lost = sent and is_gone
        return Receipt(
            landed,
            {**fired, "agent_is_gone": is_gone, "container_went_on": went_on},
            took_effect_ns=integer(fired["at_ns"]) if lost else None,
            lost_lease_id=text(fired["lease_id"]) if lost else None,
        )


def _agent(found: tuple[Process, ...], words: str, container: Container) -> Process:
    agents = [each for each in found if words in each.command and each.inner_pid != 1]
    outer = [each for each in agents if "while" not in each.command]
    if not outer:
        raise NoTarget(f"no process of {container.service} but its first is {words!r}")
    return outer[0]


def _below(found: tuple[Process, ...], pid: int) -> list[Process]:
    """Return what a process has started, and what that has started, and so on."""
    family = {pid}
    while more := {each.pid for each in found if each.parent in family} - family:
        family |= more
    return [each for each in found if each.pid in family - {pid}]


def _await_end(scene: Scene, container: Container, pids: set[int]) -> list[Process]:
    """Wait until none of these lives any more; return those that still do after a while."""
    deadline = time.monotonic() + GONE_S
    while True:
        listing = scene.world.processes.listing(container)
        left = [each for each in listing if each.pid in pids]
        if not left or time.monotonic() > deadline:
            return left
        scene.wait(lambda _: False, LOOK_S)


def _container(scene: Scene) -> Container:
    target = scene.target()
    if target.container is None or target.lease_id is None:
        raise NoTarget(f"{target.symbol} is no worker that holds a task")
    return target.container


FAULT = KillAgent()
