"""Checkpoints through the coordinator's store: workers with separate roots, killed and stopped."""

import hashlib
import json
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from flashruntime.protocol.jobs import JobState
from tests.integration.worker_stack import Service, Stack

pytestmark = pytest.mark.integration

TRAIN = """
import json, os, sys, time
from pathlib import Path
from flashruntime.attempt import NOTICE_EXIT_CODE, Attempt

LAST, EVERY, PAUSE_S = 60, int(os.environ.get("EVERY", "5")), 0.02
attempt = Attempt.from_env()
attempt.install_notice()
found = attempt.resume()
done = found.step if found else 0
digest = bytes(found.parts["digest"]) if found else b"begin"
gate = Path(os.environ["MARKS"]) / "go"
import hashlib
for step in range(done + 1, LAST + 1):
    digest = hashlib.sha256(digest + str(step).encode()).digest()
    attempt.report(step)
    if step % EVERY == 0 or attempt.notice.is_set():
        attempt.save(step, {"digest": digest, "frozen": b"f" * 300_000, "pad": os.urandom(50_000)})
    if attempt.notice.is_set():
        sys.exit(NOTICE_EXIT_CODE)
    while step == int(os.environ.get("HOLD", "0")) and not gate.exists():
        time.sleep(0.01)
        if attempt.notice.is_set():
            break
    time.sleep(PAUSE_S)
attempt.log({"digest": digest.hex()})
"""


def uninterrupted() -> str:
    digest = b"begin"
    for step in range(1, 61):
        digest = hashlib.sha256(digest + str(step).encode()).digest()
    return digest.hex()


@pytest.fixture
def stack(tmp_path: Path) -> Iterator[Stack]:
    with Stack(tmp_path) as running:
        (tmp_path / "marks").mkdir()
        yield running


def worker(stack: Stack, name: str, **env: str) -> Service:
    """Start a worker with a checkpoint root of its own."""
    own = {"FLASHML_CHECKPOINT_ROOT": str(stack.root / f"ck-{name}")}
    return stack.start_worker(name, FLASHML_CHECKPOINT_RELAY="on", **own, **env)


def submit(stack: Stack, code: str = TRAIN, **parameters: Any) -> str:
    env = {"MARKS": str(stack.root / "marks"), **parameters.pop("env", {})}
    return stack.submit(code, env=env, **parameters)


def ask(stack: Stack, job_id: str, what: str = "") -> dict[str, Any]:
    url = f"{stack.url}/v1alpha1/jobs/{job_id}/tasks/0/checkpoints{what}"
    found: dict[str, Any] = httpx.get(url).raise_for_status().json()
    return found


def stored(stack: Stack, job_id: str) -> list[int]:
    return [record["step"] for record in ask(stack, job_id)["items"]]


def fetched(service: Service) -> list[int]:
    return [e["step"] for e in service.events() if e.get("event") == "checkpoint_fetched"]


def test_a_killed_workers_task_goes_on_from_the_relayed_step(stack: Stack) -> None:
    """No byte of the first worker's disk is left; the result is the uninterrupted one."""
    first = worker(stack, "first")
    job_id = submit(stack, env={"HOLD": "33"})
    stack.until(lambda: 30 in stored(stack, job_id))
    stack.until(lambda: ask(stack, job_id, "/lost-work")["would_recompute"] == 3)
    first.signal(signal.SIGKILL)
    first.exit_code()
    (stack.root / "marks/go").touch()
    (stack.root / "ck-first").rename(stack.root / "gone")
    second = worker(stack, "second")
    assert stack.ended(job_id).state is JobState.SUCCEEDED
    (task,) = stack.client.tasks(job_id)
    assert (task.resumed_from, task.losses, task.errors) == (30, 1, 0)
    assert (task.metrics or {})["digest"] == uninterrupted()
    assert fetched(second) == [30]
    lost = ask(stack, job_id, "/lost-work")
    assert (lost["recomputed"], lost["would_recompute"]) == (3, 0)


def test_a_stopped_worker_sends_its_last_checkpoint_within_the_notice(stack: Stack) -> None:
    """Nothing is computed twice: what the notice saved is what the next worker goes on from."""
    first = worker(stack, "first", FLASHML_NOTICE_S="8")
    job_id = submit(stack, env={"HOLD": "12", "EVERY": "1000"}, lease_seconds=60)
    (ck,) = [stack.root / f"ck-first/{job_id}/{job_id}-00000"]
    stack.until(lambda: ask(stack, job_id, "/lost-work")["reported_step"] == 12 or step(stack))
    first.signal(signal.SIGTERM)
    assert first.exit_code() == 0
    last = int(sorted(path.name for path in ck.glob("step-*"))[-1][5:])
    assert stored(stack, job_id) == [last]
    assert ask(stack, job_id, "/lost-work")["would_recompute"] == 0
    (stack.root / "marks/go").touch()
    worker(stack, "second")
    assert stack.ended(job_id).state is JobState.SUCCEEDED
    (task,) = stack.client.tasks(job_id)
    assert (task.resumed_from, task.errors) == (last, 0)
    assert (task.metrics or {})["digest"] == uninterrupted()
    assert ask(stack, job_id, "/lost-work")["recomputed"] == 0


def step(stack: Stack) -> bool:
    """Whether the attempt has come to the step at which it waits."""
    files = list(stack.root.glob("work-first/agents/first/attempts/*/step.json"))
    return any(json.loads(path.read_text())["step"] == 12 for path in files)


def test_l4_relaying_outlives_the_coordinator(stack: Stack) -> None:
    """Killed and started again: the training goes on, the catalogue is there, and grows."""
    first = worker(stack, "first")
    job_id = submit(stack, env={"HOLD": "40"}, lease_seconds=60)
    stack.until(lambda: stored(stack, job_id))
    stack.coordinator.signal(signal.SIGKILL)
    stack.coordinator.exit_code()
    first.await_line("relay_unanswered")
    stack.start_coordinator()
    stack.until(lambda: 40 in stored(stack, job_id))
    (stack.root / "marks/go").touch()
    assert stack.ended(job_id).state is JobState.SUCCEEDED
    (task,) = stack.client.tasks(job_id)
    assert (task.attempts, (task.metrics or {})["digest"]) == (1, uninterrupted())


CRASH = """
import os, sys
from flashruntime.attempt import Attempt
attempt = Attempt.from_env()
found = attempt.resume()
if found is None:
    attempt.save(3, {"w": b"good"})
    __import__("time").sleep(1.2)
    attempt.save(7, {"w": b"bad"})
    attempt.report(9)
    raise RuntimeError("shape of the state is odd")
if bytes(found.parts["w"]) == b"bad":
    raise RuntimeError("shape of the state is odd")
attempt.log({"resumed": found.step, "suspect": os.environ.get("FLASHML_SUSPECT_STEP")})
"""


def test_c15_a_checkpoint_that_crashes_twice_on_two_machines_is_set_aside_on_a_third(
    stack: Stack,
) -> None:
    job_id = submit(stack, CRASH, maxTaskAttempts=9)
    for name in ("first", "second", "third"):
        service = worker(stack, name)
        service.await_line("attempt_failed")
        service.signal(signal.SIGTERM)
        service.exit_code()
    assert [r["step"] for r in ask(stack, job_id)["items"] if r["set_aside"]] == [7]
    assert ask(stack, job_id, "/latest")["checkpoint"]["step"] == 3
    worker(stack, "fourth")
    assert stack.ended(job_id).state is JobState.SUCCEEDED
    (task,) = stack.client.tasks(job_id)
    assert task.metrics == {"resumed": 3, "suspect": "7"}
    assert stack.event_types(job_id).count("CHECKPOINT_SET_ASIDE") == 1


def test_the_calls_over_http_refuse_what_they_must_with_a_reason(stack: Stack) -> None:
    """Statuses, limits and damaged bytes, as any client sees them."""
    first = worker(stack, "first")
    job_id = submit(stack, env={"HOLD": "12"}, lease_seconds=60)
    stack.until(lambda: 10 in stored(stack, job_id))
    (task,) = stack.client.tasks(job_id)
    base = f"{stack.url}/v1alpha1/jobs/{job_id}/tasks/{task.task_id}/checkpoints"
    lease, part = task.lease_id, {"sha256": "A" * 64, "size_bytes": 5}
    with httpx.Client() as http:
        manifest = http.get(f"{base}/latest").json()["manifest"]
        known = manifest["parts"][0]["sha256"]
        announced = http.post(f"{base}/parts", json={"lease_id": lease, "parts": [part]})
        assert announced.json() == {"missing": ["a" * 64]}
        put = {
            409: http.put(f"{base}/parts/{'b' * 64}", params={"lease_id": lease}, content=b"12345"),
            400: http.put(f"{base}/parts/{'a' * 64}", params={"lease_id": lease}, content=b"12345"),
            413: http.put(
                f"{base}/parts/{'a' * 64}", params={"lease_id": lease}, content=b"123456"
            ),
            422: http.put(f"{base}/parts/{'a' * 63}", params={"lease_id": lease}, content=b"12345"),
            404: http.put(f"{base}/parts/{'a' * 64}", params={"lease_id": "no"}, content=b"12345"),
        }
        assert {status: answer.status_code for status, answer in put.items()} == {s: s for s in put}
        assert all({"detail", "code"} <= answer.json().keys() for answer in put.values())
        for broken in ({**manifest, "step": 11}, {"a": [[]]}, {**manifest, "digest": None}):
            answer = http.post(f"{base}/commit", json={"lease_id": lease, "manifest": broken})
            assert answer.status_code == 409, answer.text
        for wrong in (b"[1]", b"{", b'{"lease_id":"x","manifest":{"a":NaN}}', b"{}"):
            headers = {"Content-Type": "application/json"}
            answer = http.post(f"{base}/commit", content=wrong, headers=headers)
            assert answer.status_code == 422, answer.text
        assert http.get(f"{base}/parts/{'a' * 64}").status_code == 404
        answer = http.get(f"{base}/parts/{known}")
        assert hashlib.sha256(answer.content).hexdigest() == known
        blob = stack.root / "artifacts" / "sha256" / known[:2] / known
        blob.chmod(0o600)
        blob.write_bytes(b"\0" * blob.stat().st_size)
        assert http.get(f"{base}/parts/{known}").status_code == 404
        stack.client.cancel(job_id)
        late = http.post(f"{base}/parts", json={"lease_id": lease, "parts": [part]})
        assert late.status_code == 410
    first.await_line("attempt_discarded")
    assert "CHECKPOINT_REJECTED" in stack.event_types(job_id)
