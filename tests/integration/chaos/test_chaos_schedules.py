"""Triggers' looks at real containers and volumes, and a schedule shrunk on the composed stack."""

import json
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from chaos.model import NoTarget

pytestmark = pytest.mark.integration
ROOT = Path(__file__).parents[3]
JOB, TASK, LEASE = "job-000000000001", "job-000000000001-00000", "lease-1"
SAY = "open('/proc/1/fd/1', 'w').write('plain words, no JSON\\n')"


def until(condition: Callable[[], bool]) -> bool:
    deadline = time.monotonic() + 5
    while not condition() and time.monotonic() < deadline:
        time.sleep(0.05)
    return condition()


def test_a_line_is_seen_once_it_is_written_and_not_again_from_later_on(yard: Any) -> None:
    began_ns = time.monotonic_ns()
    worker = yard.world.containers.of_node("worker-1")
    signs = yard.world.signs
    assert signs.written("worker-1", began_ns) == ()
    container = yard.client.containers.get(worker.container_id)
    container.exec_run(["python3", "-c", SAY], user="0:0")

    def seen() -> bool:
        return any("plain words" in each.text for each in signs.written("worker-1", began_ns))

    assert until(seen)
    assert signs.written("worker-1", time.monotonic_ns() + 1_000_000_000) == ()
    with pytest.raises(NoTarget):
        signs.written("worker-9", began_ns)


def test_parts_without_a_manifest_are_seen_on_the_volume(yard: Any) -> None:
    signs = yard.world.signs
    save = f"/v/{JOB}/{TASK}/.staging/{LEASE}/step-000010"

    def on_volume(code: str) -> None:
        yard.client.containers.run(
            "flashruntime/helper:local",
            ["python3", "-c", f"from pathlib import Path; p = Path({save!r}); {code}"],
            volumes=[f"{yard.run_id}_checkpoints:/v"],
            user="0:0",
            remove=True,
            labels={"dev.flashruntime.owner": "flashruntime", "dev.flashruntime.run": yard.run_id},
        )

    assert signs.files(JOB, TASK, ".staging/*/step-*") == ()
    on_volume("p.mkdir(parents=True); (p / 'part-0').write_bytes(b'x')")
    assert signs.parts_written(JOB, TASK, LEASE)
    assert signs.files(JOB, TASK, ".staging/*/step-*") == (f".staging/{LEASE}/step-000010",)
    assert not signs.parts_written(JOB, TASK, "lease-2")
    on_volume("(p / 'manifest.json').write_text('{}')")
    assert not signs.parts_written(JOB, TASK, LEASE)


def chaos(*words: str, timeout_s: float) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "chaos", *words],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=timeout_s,
        check=False,
    )


def aside(number: int) -> dict[str, Any]:
    """A fault that has nothing to do with the fence."""
    return {
        "fault_id": f"aside-{number}",
        "kind": "latency",
        "target": "holder of reference",
        "trigger": {"role": "reference", "step_at_least": 3 + number},
        "deadline_s": 60.0,
        "params": {"latency_ms": 100, "hold_ms": 300},
        "comeback": "at once",
        "lanes": ["aside"],
    }


@pytest.mark.bench_stress
@pytest.mark.timeout(1200)
def test_twelve_faults_of_which_two_matter_are_shrunk_to_two_or_fewer(tmp_path: Path) -> None:
    """On the build without fencing; ten minutes are what it may take."""
    shown = chaos("run", "zombie_partition", "--dry-run", "--json", timeout_s=60)
    (plan,) = json.loads(shown.stdout)
    del plan["targets"], plan["running"]
    plan["schedule"] += [aside(number) for number in range(9)]
    file = tmp_path / "twelve.json"
    file.write_text(json.dumps(plan))
    out = ("--out", str(tmp_path))
    ran = chaos("run", "--plan", str(file), "--planted", "no_fencing", *out, timeout_s=180)
    assert ran.returncode == 1, ran.stdout + ran.stderr
    words = ("shrink", str((tmp_path / "latest").resolve()), "--invariant", "fenced_holder")
    done = chaos(*words, "--budget-s", "600", "--json", timeout_s=900)
    assert done.stdout, done.stderr
    told = json.loads(done.stdout)
    assert told["faults_before"] == 12
    assert told["faults"] <= 2
    assert told["failed"] >= 3
