"""Kills for memory are told from other kills: real control groups, in a container of 64 MiB."""

import json
import subprocess
from pathlib import Path

import pytest

pytestmark = pytest.mark.integration
ROOT = Path(__file__).parents[2]
IMAGE = "flashruntime/runtime:local"
DRIVER = """
import json, os, sys
sys.path.insert(0, "/src")
import flashruntime as flash
from flashruntime.protocol.events import EventType
answers = {}
for name, code in json.loads(sys.argv[1]).items():
    os.makedirs(f"/tmp/{name}")
    with open(f"/tmp/{name}/train.py", "w") as file:
        file.write(code)
    work = flash.CommandWorkload([sys.executable, "train.py"], source=f"/tmp/{name}")
    run = flash.submit(work, f"/tmp/{name}-out", watch=False)
    [seen] = [e.data["evidence"] for e in run.events if e.type is EventType.TASK_ATTEMPT_FAILED]
    answers[name] = {"class": run.attempts[0].failure_class, "reason": run.reason, **seen}
print("ANSWERS", json.dumps(answers))
"""
EATS = "x = bytearray(300 * 1024 * 1024)"
CODES = {
    "eats": EATS,
    "killed": "import os; os.kill(os.getpid(), 9)",
    "child": "import subprocess, sys\n"
    f"subprocess.run([sys.executable, '-c', {EATS!r}], check=True)",
    "bug": "raise ValueError('bad')",
}


def test_015_a_kill_is_out_of_memory_only_where_the_counter_says_so() -> None:
    present = subprocess.run(
        ["docker", "image", "inspect", IMAGE], capture_output=True, check=False
    )
    if present.returncode:
        pytest.skip(f"no image {IMAGE}: `make up` builds it")
    argv = [
        "docker", "run", "--rm", "--network", "none", "--memory", "64m", "--memory-swap", "64m",
        "--label", "dev.flashruntime.owner=flashruntime", "--volume", f"{ROOT}:/src:ro",
        "--tmpfs", "/tmp:mode=1777", "--env", "PYTHONDONTWRITEBYTECODE=1", "--entrypoint", "",
        IMAGE, "python3", "-c", DRIVER, json.dumps(CODES),
    ]  # fmt: skip
    done = subprocess.run(argv, capture_output=True, text=True, timeout=120, check=False)
    assert "ANSWERS" in done.stdout, done.stderr
    found = json.loads(done.stdout.partition("ANSWERS ")[2])
    assert (found["eats"]["class"], found["eats"]["signal"]) == ("resource_exhausted", 9)
    assert "oom_kill counter" in found["eats"]["reason"]
    assert found["killed"]["class"] == "worker_crash"
    assert "killed (SIGKILL), cause unknown" in found["killed"]["reason"]
    assert found["child"]["class"] == "resource_exhausted", "exit code 1, and the counter rose"
    assert (found["child"]["exit_code"], found["child"]["oom_kills"]) == (1, 1)
    assert (found["bug"]["class"], found["bug"]["oom_kills"]) == ("application_error", 0)
