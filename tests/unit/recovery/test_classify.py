"""A failure is named by its strongest evidence, never by a guess."""

import signal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flashruntime.protocol.failures import EndedBy, Evidence, FailureClass, ReportedError
from flashruntime.recovery import classify

C = FailureClass
TRACEBACK = (
    'Traceback (most recent call last):\n  File "train.py", line 9, in <module>\n    fit()\n'
)


def exited(code: int = 1, **more: str | int | None) -> Evidence:
    return Evidence.model_validate({"ended_by": "exit", "exit_code": code, **more})


def raised(error_type: str, message: str = "") -> Evidence:
    return exited(error_type=error_type, message=message)


@pytest.mark.parametrize(
    ("evidence", "expected", "said"),
    [
        (Evidence(ended_by=EndedBy.SPAWN_ERROR, message="[Errno 2] x"), C.APPLICATION_ERROR, "x"),
        (
            Evidence(ended_by=EndedBy.SPAWN_ERROR, message="[Errno 12] Cannot allocate memory"),
            C.RESOURCE_EXHAUSTED,
            "memory",
        ),
        (
            Evidence(ended_by=EndedBy.MISSING_OUTPUTS, exit_code=0, message="model.bin"),
            C.APPLICATION_ERROR,
            "model.bin",
        ),
        (Evidence(ended_by=EndedBy.BAD_INPUTS, message="a.csv"), C.ARTIFACT_CORRUPTION, "a.csv"),
        (Evidence(ended_by=EndedBy.STOPPED, exit_code=143), C.PREEMPTION, "worker"),
        (Evidence(ended_by=EndedBy.LEASE_LOST), C.NODE_LOSS, "lease"),
        (Evidence(ended_by=EndedBy.WORKER_ERROR, message="hm"), C.UNKNOWN, "hm"),
        (
            Evidence(
                ended_by=EndedBy.WORKER_ERROR,
                error_type="OSError",
                message="[Errno 28] No space left on device",
            ),
            C.RESOURCE_EXHAUSTED,
            "No space",
        ),
        (
            Evidence(
                ended_by=EndedBy.WORKER_ERROR,
                error_type="QuotaExceeded",
                message="on the worker: PUT /v1alpha1/artifacts/a: 413 job j stores 5 bytes",
            ),
            C.RESOURCE_EXHAUSTED,
            "stores 5 bytes",
        ),
        (exited(1), C.UNKNOWN, "exit code 1, no error"),
        (exited(126), C.APPLICATION_ERROR, "not executable"),
        (exited(127), C.APPLICATION_ERROR, "not found"),
        (exited(137), C.WORKER_CRASH, "SIGKILL"),
        (exited(139), C.WORKER_CRASH, "SIGSEGV"),
        (exited(143), C.UNKNOWN, "SIGTERM"),
        (exited(255), C.UNKNOWN, "255"),
    ],
)
def test_what_the_launcher_saw_decides(
    evidence: Evidence, expected: FailureClass, said: str
) -> None:
    found, reason = classify(evidence)
    assert found is expected
    assert said in reason


@pytest.mark.parametrize(
    ("number", "expected"),
    [
        (signal.SIGKILL, C.WORKER_CRASH),
        (signal.SIGSEGV, C.WORKER_CRASH),
        (signal.SIGABRT, C.WORKER_CRASH),
        (signal.SIGTERM, C.PREEMPTION),
        (99, C.WORKER_CRASH),
    ],
)
def test_signals_beat_text(number: int, expected: FailureClass) -> None:
    """A quoted traceback in the data is no cause of a process that was killed."""
    text = TRACEBACK + "torch.OutOfMemoryError: CUDA out of memory."
    evidence = Evidence(ended_by=EndedBy.SIGNAL, signal=number, log_tail=text)
    found, reason = classify(evidence)
    assert found is expected
    assert "memory" not in reason


@pytest.mark.parametrize(
    ("error_type", "message", "expected"),
    [
        ("KeyError", "'val_acc'", C.APPLICATION_ERROR),
        ("builtins.ImportError", "no module", C.APPLICATION_ERROR),
        ("ModuleNotFoundError", "No module named 'x'", C.APPLICATION_ERROR),
        ("IndentationError", "", C.APPLICATION_ERROR),
        ("FileNotFoundError", "[Errno 2] No such file", C.APPLICATION_ERROR),
        ("json.decoder.JSONDecodeError", "Expecting value", C.DATA_ERROR),
        ("UnicodeDecodeError", "'utf-8' codec", C.DATA_ERROR),
        ("zipfile.BadZipFile", "", C.DATA_ERROR),
        ("MemoryError", "", C.RESOURCE_EXHAUSTED),
        ("torch.OutOfMemoryError", "CUDA out of memory.", C.RESOURCE_EXHAUSTED),
        ("RuntimeError", "CUDA error: CUBLAS_STATUS_ALLOC_FAILED when", C.RESOURCE_EXHAUSTED),
        ("OSError", "[Errno 28] No space left on device", C.RESOURCE_EXHAUSTED),
        ("RuntimeError", "I/O error: No space (os error 28)", C.RESOURCE_EXHAUSTED),
        ("OSError", "[Errno 122] Disk quota exceeded", C.RESOURCE_EXHAUSTED),
        ("OSError", "[Errno 5] Input/output error", C.STORAGE_TIMEOUT),
        ("OSError", "[Errno 113] No route to host", C.COMMUNICATION_ERROR),
        ("ConnectionResetError", "[Errno 104] Connection reset", C.COMMUNICATION_ERROR),
        ("TimeoutError", "timed out", C.COMMUNICATION_ERROR),
        ("requests.exceptions.ReadTimeout", "", C.COMMUNICATION_ERROR),
        ("urllib.error.HTTPError", "HTTP Error 503", C.COMMUNICATION_ERROR),
        ("torch.distributed.DistBackendError", "NCCL error", C.COMMUNICATION_ERROR),
        ("RuntimeError", "CUDA error: device-side assert triggered", C.APPLICATION_ERROR),
        ("RuntimeError", "Error(s) in loading state_dict for Net:", C.APPLICATION_ERROR),
        ("RuntimeError", "CUDA error: uncorrectable ECC error", C.ACCELERATOR_FAILURE),
        ("RuntimeError", "Unable to find a valid cuDNN algorithm", C.UNKNOWN),
        ("RuntimeError", "the gloss was lost", C.UNKNOWN),
        ("OSError", "[Errno 99] odd", C.UNKNOWN),
        ("my.OwnError", "x", C.UNKNOWN),
    ],
)
def test_the_processes_own_error_decides_before_the_bare_exit_code(
    error_type: str, message: str, expected: FailureClass
) -> None:
    found, reason = classify(raised(error_type, message))
    assert found is expected
    assert error_type.rsplit(".", 1)[-1] in reason


def test_a_bus_error_of_a_loader_points_at_shared_memory() -> None:
    message = "DataLoader worker (pid 61) is killed by signal: Bus error. "
    found, reason = classify(raised("RuntimeError", message))
    assert found is C.RESOURCE_EXHAUSTED
    assert "shm_size" in reason


@pytest.mark.parametrize(
    ("log_tail", "expected"),
    [
        (TRACEBACK + "KeyError: 'val_acc'\n", C.APPLICATION_ERROR),
        (TRACEBACK + "ConnectionResetError: [Errno 104] reset by peer", C.COMMUNICATION_ERROR),
        (TRACEBACK + "torch.OutOfMemoryError: x\nretrying with batch=8\nstep 1", C.UNKNOWN),
        ("INFO apex not available (ImportError: No module named 'apex')", C.UNKNOWN),
        ("ImportError: No module named 'apex'", C.UNKNOWN),
        ("sample: <<<\n" + TRACEBACK + "ValueError: x\n>>>", C.UNKNOWN),
        ("UserWarning: something", C.UNKNOWN),
    ],
)
def test_a_log_counts_only_where_its_end_is_an_uncaught_error(
    log_tail: str, expected: FailureClass
) -> None:
    assert classify(exited(log_tail=log_tail))[0] is expected


TOLD = st.lists(
    st.builds(
        ReportedError,
        type_name=st.sampled_from(["KeyError", "ConnectionError", "Own", "RuntimeError", ""]),
        message=st.text(),
        explicit=st.booleans(),
    ),
    max_size=3,
)


@given(
    st.builds(
        Evidence,
        ended_by=st.sampled_from(EndedBy),
        exit_code=st.none() | st.integers(-(10**20), 10**20),
        signal=st.none() | st.integers(-(10**20), 10**20),
        error_type=st.none() | st.text(),
        message=st.none() | st.text(),
        log_tail=st.none() | st.text() | st.just(TRACEBACK),
        error_bases=st.lists(st.sampled_from(["ValueError", "OSError", "x"]), max_size=3),
        errno=st.none() | st.integers(-(2**31), 2**31 - 1),
        led_to_by=TOLD,
        members=TOLD,
        other_errors=TOLD,
        oom_kills=st.none() | st.integers(0, 10**6),
        ranks=st.integers(1, 100),
    )
)
def test_every_evidence_has_a_name_and_a_readable_reason(evidence: Evidence) -> None:
    found, reason = classify(evidence)
    assert found in FailureClass
    assert 0 < len(reason) < 2_000
