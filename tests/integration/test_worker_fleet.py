"""Workers with several slots, labels, cordon and drain: real processes."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from flashruntime.protocol.jobs import JobState
from flashruntime.protocol.nodes import NodeDuty, NodeOrder
from tests.integration.worker_stack import ROOT, Stack

pytestmark = pytest.mark.integration

# Each task says where it is, and waits to be told to go on.
TASK = """
import os, signal, subprocess, sys, time
from pathlib import Path
marks, name = Path(os.environ["MARKS"]), sys.argv[1]
count = os.environ["FLASHML_RESTART_COUNT"]
def leave(*_):
    (marks / f"left-{name}-{count}").touch(); sys.exit(143)
signal.signal(signal.SIGTERM, leave)
child = subprocess.Popen("(setsid sleep 3600 & echo $!); exec sleep 3600", shell=True, text=True,
                         stdout=subprocess.PIPE)
apart = child.stdout.readline().strip()
part = marks / f"part-{name}"
part.write_text(f"{os.getpid()} {child.pid} {apart}")
part.rename(marks / f"started-{name}-{count}")
while not (marks / f"go-{name}").exists(): time.sleep(0.02)
Path("metrics.json").write_text("{}")
"""
HOLDS_THE_GIL = """
import ctypes
ctypes.PyDLL(None).usleep(3_000_000)
"""


@pytest.fixture
def stack(tmp_path: Path) -> Iterator[Stack]:
    with Stack(tmp_path) as running:
        (tmp_path / "marks").mkdir()
        yield running


def submit(stack: Stack, *names: str, **parameters: object) -> str:
    return stack.submit(
        TASK,
        command=[sys.executable, "train.py", "{name}"],
        env={"MARKS": str(stack.root / "marks")},
        task_params=[{"name": name} for name in names],
        **{"lease_seconds": 30, **parameters},
    )


def started(stack: Stack, name: str, attempt: int = 0) -> list[int]:
    """Wait for an attempt to run and return the ids of its processes."""
    mark = stack.root / f"marks/started-{name}-{attempt}"
    stack.until(mark.exists)
    return [int(pid) for pid in mark.read_text().split()]


def go(stack: Stack, *names: str) -> None:
    for name in names:
        (stack.root / f"marks/go-{name}").touch()


def is_alive(pid: int) -> bool:
    try:
        stat = Path(f"/proc/{pid}/stat").read_bytes()
    except OSError:
        return False
    return stat.rpartition(b")")[2].split()[0] not in {b"Z", b"X"}


def all_dead(stack: Stack, pids: list[int]) -> None:
    stack.until(lambda: not any(map(is_alive, pids)))


def cli(stack: Stack, *words: str) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "flashruntime", *words, "--coordinator", stack.url],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_slots_run_side_by_side_and_the_end_of_one_touches_no_other(stack: Stack) -> None:
    """L17: one is killed, one ends, the third goes on; more tasks than slots wait."""
    worker = stack.start_worker("wide", FLASHML_SLOTS="3")
    job_id = submit(stack, "a", "b", "c", "d", maxTaskAttempts=3)
    pids = {name: started(stack, name) for name in "abc"}
    assert [task.state for task in stack.client.tasks(job_id)] == ["LEASED"] * 3 + ["PENDING"]
    os.kill(pids["a"][0], signal.SIGKILL)
    all_dead(stack, pids["a"])
    go(stack, "b")
    started(stack, "d")
    assert all(map(is_alive, pids["c"]))
    assert stack.client.nodes()[0].capabilities.slots == 3
    go(stack, "a", "c", "d")
    assert stack.ended(job_id).state is JobState.SUCCEEDED
    attempts = {task.params["name"]: task.attempts for task in stack.client.tasks(job_id)}
    assert attempts == {"a": 2, "b": 1, "c": 1, "d": 1}
    assert sum(event.get("event") == "worker_registered" for event in worker.events()) == 1


def test_leases_live_while_every_task_holds_its_interpreter(stack: Stack) -> None:
    """L17: the worker beats for several tasks from outside of them; another one gets neither."""
    stack.start_worker("wide", FLASHML_SLOTS="2")
    job_id = stack.submit(
        HOLDS_THE_GIL,
        command=[sys.executable, "train.py", "{n}"],
        task_params=[{"n": 1}, {"n": 2}],
        lease_seconds=1.0,
    )
    stack.until(lambda: all(task.node_id for task in stack.client.tasks(job_id)))
    stack.start_worker("idle")
    assert stack.ended(job_id).state is JobState.SUCCEEDED
    tasks = stack.client.tasks(job_id)
    assert [(task.node_id, task.attempts) for task in tasks] == [("wide", 1)] * 2


def test_a_worker_that_leaves_hands_back_all_its_tasks_at_no_cost(stack: Stack) -> None:
    """L18: a preemption costs nothing, and whole process trees end with their leases."""
    worker = stack.start_worker("wide", FLASHML_SLOTS="2", FLASHML_NOTICE_S="10")
    job_id = submit(stack, "a", "b")
    pids = started(stack, "a") + started(stack, "b")
    begin = time.monotonic()
    worker.signal(signal.SIGTERM)
    assert worker.exit_code() == 0
    assert time.monotonic() - begin < 5.0
    assert not any(map(is_alive, pids)), "children in sessions of their own too"
    assert all((stack.root / f"marks/left-{name}-0").exists() for name in "ab")
    tasks = stack.client.tasks(job_id)
    assert [(task.state, task.errors) for task in tasks] == [("PENDING", 0)] * 2


def test_a_killed_worker_takes_the_trees_of_all_its_tasks_along(stack: Stack) -> None:
    """L18: other workers take the tasks, and the losses count as no errors."""
    worker = stack.start_worker("first", FLASHML_SLOTS="2")
    job_id = submit(stack, "a", "b", lease_seconds=1.0)
    pids = started(stack, "a") + started(stack, "b")
    worker.signal(signal.SIGKILL)
    all_dead(stack, pids)
    go(stack, "a", "b")
    stack.start_worker("second", FLASHML_SLOTS="2")
    assert stack.ended(job_id).state is JobState.SUCCEEDED
    tasks = stack.client.tasks(job_id)
    assert [(task.node_id, task.attempts, task.errors) for task in tasks] == [("second", 2, 0)] * 2


def test_results_of_several_tasks_wait_for_their_coordinator(stack: Stack) -> None:
    stack.start_worker("only", FLASHML_SLOTS="2")
    job_id = submit(stack, "a", "b", lease_seconds=1.0)
    pids = started(stack, "a") + started(stack, "b")
    stack.coordinator.signal(signal.SIGKILL)
    stack.coordinator.exit_code()
    go(stack, "a", "b")
    stack.until(lambda: not any(map(is_alive, pids[::3])))
    stack.start_coordinator()
    assert stack.ended(job_id).state is JobState.SUCCEEDED
    assert [task.attempts for task in stack.client.tasks(job_id)] == [1, 1]


def test_what_a_task_gives_back_is_offered_soon(stack: Stack) -> None:
    """Though another slot was free all the time, and its claim under way."""
    stack.start_worker("only", FLASHML_SLOTS="2")
    cores = stack.client.nodes()[0].capabilities.cpus
    jobs = [submit(stack, name, resources={"cpus": cores}) for name in "ab"]
    started(stack, "a")
    assert stack.client.job(jobs[1]).waiting_for is None, "a node offers it, when it is empty"
    go(stack, "a", "b")
    begin = time.monotonic()
    assert stack.ended(jobs[1]).state is JobState.SUCCEEDED
    assert time.monotonic() - begin < 10.0


def test_a_cancelled_task_ends_with_its_whole_tree(stack: Stack) -> None:
    stack.start_worker("wide", FLASHML_SLOTS="2")
    kept, dropped = submit(stack, "kept"), submit(stack, "dropped", lease_seconds=1.5)
    pids = started(stack, "dropped")
    alive = started(stack, "kept")
    stack.client.cancel(dropped)
    all_dead(stack, pids)
    assert all(map(is_alive, alive))
    go(stack, "kept")
    assert stack.ended(kept).state is JobState.SUCCEEDED


def test_tasks_go_where_their_labels_and_resources_are(stack: Stack) -> None:
    """L18: what does not fit stands in nobody's way, and the job says what it waits for."""
    stack.start_worker("plain")
    asks = {"resources": {"cpus": 1}, "node_selector": {"zone": "eu-1"}}
    first = submit(stack, "a", **asks)
    other = submit(stack, "b")
    go(stack, "a", "b")
    assert stack.ended(other).state is JobState.SUCCEEDED
    waiting = stack.client.job(first)
    assert waiting.state is JobState.PENDING
    assert waiting.waiting_for == (
        "no node offers cpus=1, label zone=eu-1 (1 node known); add one, or ask for less"
    )
    assert "waiting: no node offers" in cli(stack, "status", first)
    stack.start_worker("there", FLASHML_LABELS="zone=eu-1")
    assert stack.ended(first).state is JobState.SUCCEEDED
    assert stack.client.tasks(first)[0].node_id == "there"


def test_a_drained_worker_hands_its_tasks_back_and_takes_no_more(stack: Stack) -> None:
    """L18: at no cost, and the order outlives the coordinator and the worker."""
    worker = stack.start_worker("old", FLASHML_SLOTS="2")
    job_id = submit(stack, "a", "b")
    pids = started(stack, "a") + started(stack, "b")
    assert cli(stack, "drain", "old", "--wait", "--timeout", "20").split() == [
        "old", "draining", "old", "drained",
    ]  # fmt: skip
    assert not any(map(is_alive, pids))
    tasks = stack.client.tasks(job_id)
    assert [(task.state, task.errors, task.attempts) for task in tasks] == [("PENDING", 0, 1)] * 2
    stack.coordinator.signal(signal.SIGKILL)
    stack.coordinator.exit_code()
    stack.start_coordinator()
    assert stack.client.nodes()[0].duty is NodeDuty.DRAINED
    assert "drained" in cli(stack, "nodes")
    go(stack, "a", "b")
    assert worker.process.poll() is None
    types = [event.type.value for event in stack.client.events(None).items]
    assert [kind for kind in types if "_DRAIN" in kind] == ["NODE_DRAINING", "NODE_DRAINED"]
    stack.start_worker("new")
    assert stack.ended(job_id).state is JobState.SUCCEEDED
    assert {task.node_id for task in stack.client.tasks(job_id)} == {"new"}


def test_a_cordoned_worker_finishes_and_waits(stack: Stack) -> None:
    stack.start_worker("only")
    first = submit(stack, "a")
    started(stack, "a")
    assert cli(stack, "cordon", "only") == "only  cordoned\n"
    second = submit(stack, "b")
    go(stack, "a", "b")
    assert stack.ended(first).state is JobState.SUCCEEDED
    assert stack.client.job(second).state is JobState.PENDING
    assert json.loads(cli(stack, "nodes", "--json"))[0]["duty"] == "cordoned"
    assert stack.client.order_node("only", NodeOrder.UNCORDON).duty is NodeDuty.ACTIVE
    assert stack.ended(second).state is JobState.SUCCEEDED
