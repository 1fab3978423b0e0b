"""A worker, its jobs and its coordinator under signals and losses."""

import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from flashruntime.launch.processes import descendants
from flashruntime.protocol.jobs import JobState
from tests.integration.worker_stack import Service, Stack

pytestmark = pytest.mark.integration

WAIT = """
import os, signal, subprocess, sys, time
from pathlib import Path
marks = Path(os.environ["MARKS"])
count = os.environ["FLASHML_RESTART_COUNT"]
def leave(*_):
    (marks / f"left-{count}").touch()
    print("saved"); sys.exit(143)
signal.signal(signal.SIGTERM, leave)
child = subprocess.Popen(["sleep", "3600"])
part = marks / f"part-{count}"
part.write_text(f"{os.getpid()} {child.pid}")
part.rename(marks / f"started-{count}")
while not (marks / "go").exists(): time.sleep(0.02)
Path("model.bin").write_text("done")
"""


@pytest.fixture
def stack(tmp_path: Path) -> Iterator[Stack]:
    with Stack(tmp_path) as running:
        (tmp_path / "marks").mkdir()
        yield running


def submit(stack: Stack, **parameters: object) -> str:
    env = {"MARKS": str(stack.root / "marks")}
    return stack.submit(WAIT, env=env, outputs={"required": ["model.bin"]}, **parameters)


def started(stack: Stack, attempt: int = 0) -> list[int]:
    """Wait for an attempt to run and return the ids of its processes."""
    mark = stack.root / f"marks/started-{attempt}"
    stack.until(mark.exists)
    return [int(pid) for pid in mark.read_text().split()]


def go(stack: Stack) -> None:
    (stack.root / "marks/go").touch()


def await_dead(stack: Stack, pids: list[int]) -> None:
    stack.until(lambda: not any(is_alive(pid) for pid in pids))


def is_alive(pid: int) -> bool:
    try:
        stat = Path(f"/proc/{pid}/stat").read_bytes()
    except OSError:
        return False
    return stat.rpartition(b")")[2].split()[0] not in {b"Z", b"X"}


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_an_idle_worker_leaves_within_two_seconds(stack: Stack, number: int) -> None:
    worker = stack.start_worker("idle")
    begin = time.monotonic()
    worker.signal(number)
    assert worker.exit_code() == 0
    assert time.monotonic() - begin < 2.0


def test_a_preempted_worker_hands_its_task_back_at_no_cost(stack: Stack) -> None:
    first = stack.start_worker("first", FLASHML_NOTICE_S="10")
    job_id = submit(stack, lease_seconds=60)
    pids = started(stack)
    begin = time.monotonic()
    first.signal(signal.SIGTERM)
    assert first.exit_code() == 0
    assert time.monotonic() - begin < 5.0, "the job ended at once, so does the worker"
    assert (stack.root / "marks/left-0").exists(), "the job had its notice"
    assert not any(is_alive(pid) for pid in pids)
    assert "saved" in stack.client.logs(job_id)
    (task,) = stack.client.tasks(job_id)
    assert (task.state, task.errors) == ("PENDING", 0)
    go(stack)
    stack.start_worker("second")
    assert stack.ended(job_id).state is JobState.SUCCEEDED


def test_a_killed_worker_leaves_no_process_and_its_task_goes_on_elsewhere(stack: Stack) -> None:
    first = stack.start_worker("first")
    job_id = submit(stack)
    pids = started(stack)
    below = descendants(first.process.pid)
    first.signal(signal.SIGKILL)
    await_dead(stack, [*pids, *below])
    stack.start_worker("second")
    started(stack, 1)
    go(stack)
    assert stack.ended(job_id).state is JobState.SUCCEEDED
    (task,) = stack.client.tasks(job_id)
    assert (task.node_id, task.attempts, task.errors) == ("second", 2, 0)


def test_a_worker_that_starts_again_removes_what_it_left(stack: Stack) -> None:
    first = stack.start_worker("first")
    submit(stack, lease_seconds=60)
    pids = started(stack)
    first.signal(signal.SIGKILL)
    await_dead(stack, pids)
    attempts = stack.root / "work-first/agents/first/attempts"
    assert any(attempts.iterdir())
    first.exit_code()
    stack.start_worker("first")
    assert not attempts.exists()


def test_a_zombie_stops_its_process_and_changes_nothing(stack: Stack) -> None:
    """A worker that was frozen longer than its lease finds it taken."""
    first = stack.start_worker("first")
    job_id = submit(stack)
    pids = started(stack)
    first.signal(signal.SIGSTOP)
    stack.start_worker("second")
    started(stack, 1)
    first.signal(signal.SIGCONT)
    first.await_line("attempt_discarded")
    assert not any(is_alive(pid) for pid in pids)
    go(stack)
    assert stack.ended(job_id).state is JobState.SUCCEEDED
    (task,) = stack.client.tasks(job_id)
    assert task.node_id == "second"
    assert "LEASE_REFUSED" in stack.event_types(job_id)


def test_a_task_outlives_its_coordinator(stack: Stack) -> None:
    """The coordinator is killed and comes back later than the lease would have lasted."""
    worker = stack.start_worker("only")
    job_id = submit(stack, lease_seconds=0.6)
    pids = started(stack)
    stack.coordinator.signal(signal.SIGKILL)
    stack.coordinator.exit_code()
    for _ in range(3):
        worker.await_line("heartbeat_unanswered")
    stack.start_coordinator()
    assert all(is_alive(pid) for pid in pids)
    go(stack)
    assert stack.ended(job_id).state is JobState.SUCCEEDED
    (task,) = stack.client.tasks(job_id)
    assert task.attempts == 1


def test_a_result_waits_for_its_coordinator(stack: Stack) -> None:
    stack.start_worker("only")
    job_id = submit(stack, lease_seconds=60)
    pids = started(stack)
    stack.coordinator.signal(signal.SIGKILL)
    stack.coordinator.exit_code()
    go(stack)
    await_dead(stack, pids)
    stack.start_coordinator()
    assert stack.ended(job_id).state is JobState.SUCCEEDED


def test_a_cancelled_job_is_stopped(stack: Stack) -> None:
    worker = stack.start_worker("only")
    job_id = submit(stack)
    pids = started(stack)
    assert stack.client.cancel(job_id).state is JobState.CANCELLED
    worker.await_line("attempt_discarded")
    assert not any(is_alive(pid) for pid in pids)


def test_a_job_that_ignores_the_notice_is_killed_within_it(stack: Stack) -> None:
    worker = stack.start_worker("only", FLASHML_NOTICE_S="2")
    code = WAIT.replace("signal.signal(signal.SIGTERM, leave)", "signal.signal(15, signal.SIG_IGN)")
    job_id = stack.submit(code, env={"MARKS": str(stack.root / "marks")}, lease_seconds=60)
    pids = started(stack)
    begin = time.monotonic()
    worker.signal(signal.SIGTERM)
    assert worker.exit_code() == 0
    assert time.monotonic() - begin < 2.5
    await_dead(stack, pids)
    (task,) = stack.client.tasks(job_id)
    assert (task.state, task.errors) == ("PENDING", 0)


def test_a_coordinator_that_is_silent_holds_up_no_worker_that_leaves(stack: Stack) -> None:
    """Idle it leaves within two seconds, with a task within its notice."""
    busy = stack.start_worker("busy", FLASHML_NOTICE_S="3")
    submit(stack, lease_seconds=60)
    pids = started(stack)
    stack.coordinator.signal(signal.SIGSTOP)
    settings = {
        "FLASHML_WORK_DIR": str(stack.root / "w"),
        "FLASHML_CHECKPOINT_ROOT": str(stack.root / "c"),
    }
    idle = Service(["work", "--coordinator", stack.url], settings, stack.root)
    stack.services.append(idle)
    idle.await_line("worker_started")
    for worker, most_s in ((idle, 2.0), (busy, 3.3)):
        begin = time.monotonic()
        worker.signal(signal.SIGTERM)
        assert worker.exit_code() == 0
        assert time.monotonic() - begin < most_s
    await_dead(stack, pids)


def test_a_worker_that_comes_before_its_coordinator_waits(stack: Stack) -> None:
    stack.coordinator.signal(signal.SIGKILL)
    stack.coordinator.exit_code()
    settings = {
        "FLASHML_WORK_DIR": str(stack.root / "w"),
        "FLASHML_CHECKPOINT_ROOT": str(stack.root / "c"),
    }

    worker = Service(["work", "--coordinator", stack.url], settings, stack.root)
    stack.services.append(worker)
    worker.await_line("coordinator_unreachable")
    stack.start_coordinator()
    worker.await_line("worker_registered")
