"""What processes tell of their errors beyond a name: classes, causes, members, other ranks."""

import json
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flashruntime.launch.environment import HOOK_DIR
from flashruntime.launch.error_file import read_errors
from flashruntime.protocol.failures import EndedBy, Evidence, FailureClass, ReportedError
from flashruntime.recovery import classify

C = FailureClass


def evidence(**fields: Any) -> Evidence:
    return Evidence.model_validate({"ended_by": "exit", "exit_code": 1, **fields})


def of_process(tmp_path: Path, code: str, **env: str) -> Evidence:
    """Return the evidence of a real Python that ends with an uncaught exception."""
    path = tmp_path / "error.json"
    (tmp_path / "train.py").write_text(textwrap.dedent(code))
    given_env = {"PYTHONPATH": str(HOOK_DIR), "FLASHML_ERROR_FILE": str(path), **env}
    argv = [sys.executable, "train.py"]
    done = subprocess.run(argv, cwd=tmp_path, env=given_env, capture_output=True, check=False)
    assert done.returncode == 1
    told = read_errors(path)
    assert told, done.stderr
    return evidence(**told)


@pytest.mark.parametrize(
    ("code", "kind", "rule"),
    [
        ("class MyTimeout(ConnectionError): pass\nraise MyTimeout('x')",
         C.COMMUNICATION_ERROR, "network-type"),
        ("class Bad(ValueError): pass\nclass Worse(Bad): pass\nraise Worse('x')",
         C.APPLICATION_ERROR, "user-type"),
        ("class Full(OSError): pass\nraise Full(28, 'full')", C.RESOURCE_EXHAUSTED,
         "disk-or-quota"),
        ("class Own(Exception): pass\nraise Own('x')", C.UNKNOWN, "error-not-known"),
        ("class Both(ConnectionError, ValueError): pass\nraise Both('x')", C.UNKNOWN,
         "error-not-known"),
        ("import json\nclass Odd(json.JSONDecodeError): pass\nraise Odd('x', 'y', 0)",
         C.DATA_ERROR, "data-type"),
        ("""
         try: raise ConnectionResetError(104, 'reset')
         except OSError as error: raise RuntimeError('no shard') from error
         """, C.COMMUNICATION_ERROR, "raised-from-network-os"),
        ("""
         try:
             try: raise KeyError('lr')
             except KeyError as error: raise RuntimeError('bad config') from error
         except RuntimeError as error: raise SystemError('giving up') from error
         """, C.APPLICATION_ERROR, "raised-from-user-type"),
        ("""
         try: raise ConnectionResetError(104, 'reset')
         except OSError: raise RuntimeError('no shard')
         """, C.UNKNOWN, "error-not-known"),
        ("""
         try: raise ConnectionResetError(104, 'reset')
         except OSError: raise ValueError('no shard')
         """, C.UNKNOWN, "turned-into-another"),
        ("""
         try: raise ConnectionResetError(104, 'reset')
         except OSError: raise ValueError('no shard') from None
         """, C.APPLICATION_ERROR, "user-type"),
        ("raise ExceptionGroup('shards', [TimeoutError('a'), ExceptionGroup('b', "
         "[ConnectionResetError(104, 'x')])])", C.COMMUNICATION_ERROR, "group-network-type"),
        ("raise ExceptionGroup('shards', [KeyError('a'), TypeError('b')])",
         C.APPLICATION_ERROR, "group-user-type"),
        ("raise ExceptionGroup('shards', [KeyError('a'), TimeoutError('b')])", C.UNKNOWN,
         "group-differs"),
        ("import errno\nraise OSError(errno.EHOSTUNREACH, 'gone')", C.COMMUNICATION_ERROR,
         "network-os"),
    ],
)  # fmt: skip
def test_an_exception_is_known_by_what_it_says_of_itself(
    tmp_path: Path, code: str, kind: FailureClass, rule: str
) -> None:
    """Its classes and the cause that it names count; what was merely being handled does not."""
    found, reason = classify(of_process(tmp_path, code))
    assert (found, f"[rule {rule}]" in reason) == (kind, True), reason


def test_the_log_alone_tells_a_named_cause_too() -> None:
    reset = "ConnectionResetError: [Errno 104] Connection reset by peer\n\n"
    head = 'Traceback (most recent call last):\n  File "train.py", line 3, in <module>\n    x()\n'
    direct = "The above exception was the direct cause of the following exception:\n\n"
    during = "During handling of the above exception, another exception occurred:\n\n"
    last = head + "RuntimeError: no shard\n"
    named = classify(evidence(log_tail=head + reset + direct + last))
    assert named[0] is C.COMMUNICATION_ERROR
    assert classify(evidence(log_tail=head + reset + during + last))[0] is C.UNKNOWN


def write(path: Path, rank: int, at_ns: int, kind: str, message: str) -> None:
    fields = {"type": kind, "message": message, "bases": [], "rank": rank, "at_ns": at_ns}
    path.write_text(json.dumps(fields))


def test_of_many_ranks_the_first_real_error_counts(tmp_path: Path) -> None:
    """Sixteen ranks, whose lost connections were written before the error that lost them."""
    main = tmp_path / "error.json"
    lost = "[/pytorch/gloo/transport/tcp/pair.cc:534] Connection closed by peer [127.0.0.1]:9"
    write(main, 0, 30, "RuntimeError", lost)
    for rank in range(16):
        write(tmp_path / f"error.json.rank{rank}", rank, 30 + rank, "RuntimeError", lost)
    write(tmp_path / "error.json.rank11", 11, 29, "ValueError", "bad label")
    told = read_errors(main)
    assert told["other_errors"][0].rank == 11
    kind, reason = classify(evidence(**told, ranks=16))
    assert (kind, reason) == (C.APPLICATION_ERROR, "ValueError: bad label [rule user-type]")


def test_a_lost_connection_of_all_ranks_stays_one(tmp_path: Path) -> None:
    others = [
        ReportedError(type_name="RuntimeError", message="NCCL error: x", rank=n) for n in (1, 2)
    ]
    seen = evidence(error_type="RuntimeError", message="NCCL error: y", other_errors=others)
    assert classify(seen)[0] is C.COMMUNICATION_ERROR


def test_ranks_leave_files_of_their_own_and_the_first_is_the_main_one(tmp_path: Path) -> None:
    of_process(tmp_path, "raise TimeoutError('slow')", RANK="3")
    told = of_process(tmp_path, "raise ValueError('x')", RANK="1")
    assert (told.error_type, [each.rank for each in told.other_errors]) == ("TimeoutError", [1])
    assert sorted(path.name for path in tmp_path.glob("error*")) == [
        "error.json", "error.json.rank1", "error.json.rank3",
    ]  # fmt: skip


def test_a_rank_whose_launcher_gave_it_a_file_of_its_own_leaves_no_other(tmp_path: Path) -> None:
    own = str(tmp_path / "error.json.rank2")
    of_process(tmp_path, "raise ValueError('x')", RANK="1")
    of_process(tmp_path, "raise KeyError('y')", RANK="2", FLASHML_ERROR_FILE=own)
    told = read_errors(tmp_path / "error.json")
    assert [(each.rank, each.type_name) for each in told["other_errors"]] == [(2, "KeyError")]
    assert len(list(tmp_path.glob("error*"))) == 3


def test_interleaved_output_of_eight_ranks_shows_the_first_error() -> None:
    """Without any error file: each rank's traceback is put together from between the others'."""
    texts = []
    for rank in range(8):
        final = "RuntimeError: NCCL communicator was aborted on rank 0"
        if rank == 5:
            final = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB."
        texts.append([
            f"[rank{rank}]: Traceback (most recent call last):",
            f'[rank{rank}]:   File "train.py", line 9, in <module>',
            f"[rank{rank}]:     step()",
            f"[rank{rank}]: {final}",
        ])  # fmt: skip
    mixed = [line for lines in zip(*(texts[5:] + texts[:5]), strict=True) for line in lines]
    end = "W0101 torch/distributed/elastic/api.py:900] Sending process 5 closing signal SIGTERM"
    seen = evidence(log_tail="\n".join([*mixed, end]), ranks=8)
    kind, reason = classify(seen)
    assert kind is C.RESOURCE_EXHAUSTED, reason


@pytest.mark.parametrize(
    ("fields", "kind"),
    [
        ({"ended_by": "signal", "exit_code": None, "signal": 9}, C.RESOURCE_EXHAUSTED),
        ({"exit_code": 137}, C.RESOURCE_EXHAUSTED),
        ({"exit_code": 1}, C.RESOURCE_EXHAUSTED),
        ({"error_type": "BrokenProcessPool", "message": "x"}, C.RESOURCE_EXHAUSTED),
        ({"error_type": "ValueError", "message": "no result"}, C.UNKNOWN),
        ({"ended_by": "missing_outputs", "exit_code": 0, "message": "a"}, C.UNKNOWN),
        ({"ended_by": "signal", "exit_code": None, "signal": 11}, C.WORKER_CRASH),
        ({"ended_by": "stopped"}, C.PREEMPTION),
    ],
)
def test_the_counter_of_kills_explains_what_it_can(
    fields: dict[str, Any], kind: FailureClass
) -> None:
    found, reason = classify(evidence(**fields, oom_kills=2))
    assert found is kind, reason
    assert ("2 of its control group" in reason) == (kind in {C.RESOURCE_EXHAUSTED, C.UNKNOWN})
    assert classify(evidence(**fields, oom_kills=0)) == classify(evidence(**fields))


GPU = {
    C.ACCELERATOR_FAILURE: [
        "AcceleratorError: CUDA error: an illegal memory access was encountered\nCUDA kernel",
        "RuntimeError: CUDA error: unspecified launch failure",
        "RuntimeError: CUDA error: all CUDA-capable devices are busy or unavailable",
        "RuntimeError: CUDA error: CUDA-capable device(s) is/are busy or unavailable",
        "RuntimeError: CUDA error: Invalid access of peer GPU memory over nvlink or a hardware",
        "RuntimeError: cuda runtime error (39) : uncorrectable ECC error encountered at x.cpp:265",
        "RuntimeError: Triton Error [CUDA]: an illegal memory access was encountered",
        "RuntimeError: HIP error: the launch timed out and was terminated",
        "DistBackendError: [PG ID 0 PG GUID 0 Rank 3] Process group watchdog thread terminated "
        "with exception: CUDA error: uncorrectable ECC error encountered",
        "DistBackendError: NCCL error in: x.cpp:1, unhandled cuda error\nncclUnhandledCudaError: "
        "Call to CUDA function failed.\nLast error:\nCuda failure 214 'uncorrectable ECC error'",
        "XlaRuntimeError: INTERNAL: Failed to load: CUDA_ERROR_ILLEGAL_ADDRESS: an illegal access",
    ],
    C.RESOURCE_EXHAUSTED: [
        "RuntimeError: CUDA error: out of memory",
        "RuntimeError: Triton Error [CUDA]: out of memory",
        "XlaRuntimeError: RESOURCE_EXHAUSTED: Out of memory while trying to allocate",
    ],
    C.APPLICATION_ERROR: [
        "AcceleratorError: CUDA error: device-side assert triggered",
        "RuntimeError: CUDA error: no kernel image is available for execution on the device",
        "RuntimeError: CUDA error: invalid device ordinal",
    ],
    C.UNKNOWN: [
        "RuntimeError: CUDA error: CUBLAS_STATUS_EXECUTION_FAILED when calling x",
        "RuntimeError: CUDA error: unknown error",
        "RuntimeError: No CUDA GPUs are available",
    ],
}


@pytest.mark.parametrize(
    ("error", "kind"), [(error, kind) for kind, errors in GPU.items() for error in errors]
)
def test_faults_of_accelerators_are_told_from_misuse_and_from_short_memory(
    error: str, kind: FailureClass
) -> None:
    error_type, _, message = error.partition(": ")
    found, reason = classify(evidence(error_type=error_type, message=message))
    assert found is kind, reason


def test_a_fault_that_aborts_the_process_is_named_by_its_last_words() -> None:
    text = (
        "Memory access fault by GPU node-1 (Agent handle: 0x1) on address 0x2. "
        "Reason: Page not present or supervisor privilege.\n"
    )
    seen = Evidence(ended_by=EndedBy.SIGNAL, signal=6, log_tail=text)
    assert classify(seen)[0] is C.ACCELERATOR_FAILURE


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=20),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                ["type", "message", "bases", "errno", "chain", "members", "rank", "at_ns"]
            ),
            inner,
        )
    ),
    max_leaves=12,
)


@given(main=_JSON, rank=_JSON)
def test_whatever_a_job_writes_into_error_files_is_survived(
    tmp_path_factory: pytest.TempPathFactory, main: object, rank: object
) -> None:
    path = tmp_path_factory.mktemp("files") / "error.json"
    path.write_text(json.dumps(main))
    path.with_name("error.json.rank1").write_text(json.dumps(rank))
    kind, reason = classify(evidence(**read_errors(path)))
    assert kind in FailureClass
    assert 0 < len(reason) < 2_000
