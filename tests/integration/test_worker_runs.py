"""A worker runs jobs of a real coordinator."""

from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path

import pytest

from flashruntime.protocol.jobs import JobState
from flashruntime.recovery.replay import replay
from tests.integration.worker_stack import Service, Stack

pytestmark = pytest.mark.integration


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    with Stack(tmp_path_factory.mktemp("stack")) as running:
        yield running


@pytest.fixture(scope="module")
def worker(stack: Stack) -> Service:
    return stack.start_worker("steady", FLASHML_TOKEN="hidden" * 6)


SUCCEED = """
import json, os
from pathlib import Path
out = Path(os.environ["FLASHML_OUTPUT_DIR"])
(out / "sub").mkdir()
(out / "sub/model é.bin").write_bytes(b"weights")
Path("metrics.json").write_text('{"loss": NaN, "acc": 0.5, "big": 123456789012345678901234}')
Path(os.environ["FLASHML_STEP_FILE"]).write_text('{"step": 9, "resumed_from": 4}')
names = sorted(name for name in os.environ if name.startswith("FLASHML"))
print(json.dumps([os.getcwd(), open("cfg/a.yaml").read(), names]))
"""


def test_a_job_succeeds_with_metrics_and_real_artifacts(stack: Stack, worker: Service) -> None:
    job_id = stack.submit(
        SUCCEED, files={"cfg/a.yaml": "lr: 1"}, outputs={"required": ["sub/model é.bin"]}
    )
    assert stack.ended(job_id).state is JobState.SUCCEEDED
    (task,) = stack.client.tasks(job_id)
    assert task.metrics == {"loss": None, "acc": 0.5, "big": "123456789012345678901234"}
    assert (task.step, task.resumed_from) == (9, 4)
    stored = {record.path: record for record in stack.client.artifacts(job_id)}
    assert stored["sub/model é.bin"].sha256 == sha256(b"weights").hexdigest()
    log = stack.client.logs(job_id)
    assert "lr: 1" in log
    assert "FLASHML_CKPT_DIR" in log
    assert "FLASHML_TOKEN" not in log


def test_metrics_that_the_attempt_did_not_write_do_not_count(stack: Stack, worker: Service) -> None:
    """Case 081."""
    job_id = stack.submit("print('idle')", files={"metrics.json": '{"acc": 0.99}'})
    assert stack.ended(job_id).state is JobState.SUCCEEDED
    (task,) = stack.client.tasks(job_id)
    assert task.metrics is None
    assert task.outputs == []


@pytest.mark.parametrize("text", ['[{"acc":0.9}]', "null", '{"acc":1}\n{"acc":2}', "", "[" * 10**5])
def test_metrics_of_a_wrong_shape_are_a_warning(stack: Stack, worker: Service, text: str) -> None:
    """Case 077."""
    job_id = stack.submit(f"open('metrics.json', 'w').write({text!r})")
    assert stack.ended(job_id).state is JobState.SUCCEEDED
    (task,) = stack.client.tasks(job_id)
    assert task.metrics is None
    assert "[flashruntime] metrics.json" in stack.client.logs(job_id)


def test_an_uncaught_error_fails_the_job_at_once_with_its_own_words(
    stack: Stack, worker: Service
) -> None:
    job_id = stack.submit("{}['val_acc']", maxTaskAttempts=5)
    job = stack.ended(job_id)
    (task,) = stack.client.tasks(job_id)
    assert job.state is JobState.FAILED
    assert task.attempts == 1
    assert "KeyError" in (task.reason or "")
    assert "KeyError: 'val_acc'" in stack.client.logs(job_id)


@pytest.mark.parametrize(
    ("code", "why"),
    [
        (
            "import json, os, sys\n"
            "told = {'message': {'message': 'ValueError: heads', 'extraInfo': {}}}\n"
            "json.dump(told, open(os.environ['TORCHELASTIC_ERROR_FILE'], 'w'))\n"
            "sys.exit(1)",
            "ValueError: heads",
        ),
        ("class Bad(ValueError): pass\nraise Bad('heads')", "Bad: heads"),
        (
            "try: {}['lr']\nexcept KeyError as error: raise RuntimeError('bad config') from error",
            "RuntimeError: bad config, raised from KeyError: 'lr'",
        ),
    ],
)
def test_what_a_process_tells_of_its_error_decides_on_the_coordinator_too(
    stack: Stack, worker: Service, code: str, why: str
) -> None:
    """F3: and the decision can be made again from the events that the API gives."""
    job_id = stack.submit(code, maxTaskAttempts=5)
    assert stack.ended(job_id).state is JobState.FAILED
    (task,) = stack.client.tasks(job_id)
    assert (task.attempts, why in (task.reason or "")) == (1, True)
    [made] = replay(stack.client.events(job_id).items)
    assert made.same


def test_a_mistyped_executable_is_named_and_not_tried_again(stack: Stack, worker: Service) -> None:
    """Case 091: and the worker takes the next job."""
    job_id = stack.submit("", command=["pyhton3", "train.py"], maxTaskAttempts=5)
    assert stack.ended(job_id).state is JobState.FAILED
    (task,) = stack.client.tasks(job_id)
    assert task.attempts == 1
    assert "executable not found: pyhton3" in (task.reason or "")
    assert stack.ended(stack.submit("print(1)")).state is JobState.SUCCEEDED


@pytest.mark.parametrize(
    ("code", "why"),
    [
        ("", "not found"),
        ("import os; os.symlink('/etc/hostname', 'model.bin')", "symbolic link"),
        ("import os; os.mkdir('model.bin')", "not a regular file"),
    ],
)
def test_a_required_output_that_is_not_there_fails_the_job(
    stack: Stack, worker: Service, code: str, why: str
) -> None:
    job_id = stack.submit(code, outputs={"required": ["model.bin"]})
    assert stack.ended(job_id).state is JobState.FAILED
    (task,) = stack.client.tasks(job_id)
    assert "model.bin" in (task.reason or "")
    assert why in (task.reason or "")


FLOOD = """
import sys
write = sys.stdout.buffer.write
write(b"caf\\xe9 \\x97 \\xff\\xfe \\x00\\n" + b"x" * 3_000_000 + b"\\n")
for i in range(5000): sys.stderr.write(f"\\r{i}/5000")
sys.stderr.write("\\n")
for i in range(100_000): print("line", i)
print("END")
"""


def test_output_of_any_kind_reaches_the_log(stack: Stack, worker: Service) -> None:
    """Cases 029, 031, 033."""
    job_id = stack.submit(FLOOD)
    assert stack.ended(job_id).state is JobState.SUCCEEDED
    assert stack.client.logs(job_id, 5).splitlines()[-2:] == ["line 99999", "END"]


def test_an_attempt_leaves_nothing_in_the_work_directory(stack: Stack, worker: Service) -> None:
    job_id = stack.submit("import os; os.mkdir('closed'); os.chmod('closed', 0)")
    stack.ended(job_id)
    attempts = stack.root / "work-steady/agents/steady/attempts"
    stack.until(lambda: not any(attempts.iterdir()))


def test_a_worker_that_cannot_write_says_so_and_ends(stack: Stack) -> None:
    """Case 163."""
    Path(stack.root, "file").touch()
    blocked = Service(["work"], {"FLASHML_WORK_DIR": str(stack.root / "file/work")}, stack.root)
    assert blocked.exit_code() == 1
    text = blocked.await_line("FLASHML_WORK_DIR")[0]
    assert text
    assert "uid" in "".join(blocked.lines)
