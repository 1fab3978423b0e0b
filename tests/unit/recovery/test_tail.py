"""The end of a log is read without guessing, whatever it holds."""

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flashruntime.protocol.failures import EndedBy, Evidence, FailureClass
from flashruntime.recovery import classify
from flashruntime.recovery.tail import MAX_MESSAGE, MAX_TEXT, Form, read_tail

HEAD = 'Traceback (most recent call last):\n  File "train.py", line 9, in <module>\n    fit()\n'
FRAGMENTS = [
    "Traceback (most recent call last):", '  File "x.py", line 1, in f', "    fit()", "    ~~~^^",
    "ValueError: bad", "KeyError", "a.b.<locals>.C: x", "", "step 1 loss 2", "\x1b[31mred\x1b[0m",
    "[rank1]: Traceback (most recent call last):", '[rank1]:   File "x", line 2',
    "[rank1]: TypeError: t", "[rank0]:[E ProcessGroupNCCL.cpp:607] Watchdog caught",
    "During handling of the above exception, another exception occurred:",
    "W api.py: Sending process 41 closing signal SIGTERM", "  what():  CUDA error: x",
    "terminate called after throwing an instance of 'c10::Error'", "\r99%|##|\r100%|##|",
    "Original Traceback (most recent call last):", "Root Cause (first observed failure):",
    "W1 api.py:9] Restarting worker group", "\ud800\ufffd", "SyntaxError: invalid syntax",
]  # fmt: skip
LINES = st.lists(st.sampled_from(FRAGMENTS) | st.text(max_size=20), max_size=30)


def exit_1(log: str, **more: str) -> Evidence:
    return Evidence(ended_by=EndedBy.EXIT, exit_code=1, log_tail=log, **more)


@given(LINES.map("\n".join))
def test_any_text_has_an_answer(text: str) -> None:
    tail = read_tail(text)
    for error in (*tail.final, *tail.ranks):
        assert error.type_name
        assert error.type_name in text.replace("::", ".")
    for end in (EndedBy.EXIT, EndedBy.SIGNAL):
        seen = Evidence(
            ended_by=end, exit_code=1, signal=6, log_tail=text.encode("utf-8", "replace").decode()
        )
        assert classify(seen)[1]


@given(LINES.map("\n".join))
def test_an_uncaught_error_at_the_end_is_found_whatever_stands_before(text: str) -> None:
    tail = read_tail(f"{text}\n.\n{HEAD}KeyError: 'x'\n")
    assert [(e.form, e.type_name, e.message) for e in tail.final] == [
        (Form.TRACEBACK, "KeyError", "'x'")
    ]


@given(LINES.map("\n".join))
def test_what_goes_on_after_its_error_has_none(text: str) -> None:
    assert read_tail(f"{text}\nstep 7 of 9 done.").final == ()


@pytest.mark.parametrize(
    "unit",
    [
        "x", " ", "\r", "a.", "\x1b[", "[rank1]: ", "(os error ", "E ", "=", "-", "\n", "  \n",
        'File "', '  File "x", line 1\n', "Traceback (most recent call last):\n", "ValueError: x\n",
        "[rank1]: ValueError: x\n", "process 1 exit", "W api.py ", "Error", "X.<locals>",
        "During handling of the above exception, another exception occurred:\n",
        "Process 4242 has 70.00 GiB memory in use. ",
    ],
)  # fmt: skip
def test_a_hostile_megabyte_costs_little(unit: str) -> None:
    log = (unit * (1_000_000 // len(unit) + 1))[:1_000_000]
    shapes = [f"{HEAD}CUDA out of memory. {log}", f"{HEAD}{log}: x"]
    began = time.process_time()
    for text in shapes:
        assert classify(exit_1(text))[1]
        assert classify(exit_1("", error_type="RuntimeError", message=text))[1]
        assert classify(exit_1("", error_type="ChildFailedError", message=text))[1]
    assert time.process_time() - began < 5.0


def test_only_the_end_of_a_text_is_read() -> None:
    tail = read_tail(HEAD + "ValueError: " + "x" * MAX_TEXT)
    assert tail.final == ()
    many = read_tail(HEAD + "ValueError: x\n" + "  more\n" * 10_000)
    assert len(many.final[0].message) <= MAX_MESSAGE + 100


def test_a_traceback_whose_beginning_was_cut_off_still_counts() -> None:
    tail = read_tail('    f()\n  File "a.py", line 1, in f\n    g()\nKeyError: 1\n')
    assert [error.type_name for error in tail.final] == ["KeyError"]


def test_ranks_are_read_apart_and_only_the_last_round_counts() -> None:
    log = (
        "[rank0]: Traceback (most recent call last):\n"
        "[rank1]: Traceback (most recent call last):\n"
        '[rank0]:   File "x.py", line 1, in f\n'
        '[rank1]:   File "x.py", line 2, in f\n'
        "[rank1]: ValueError: one\n"
        "[rank0]: RuntimeError: Connection closed by peer\n"
    )
    assert [error.message for error in read_tail(log).ranks] == ["one", "Connection closed by peer"]
    assert classify(exit_1(log))[0] is FailureClass.APPLICATION_ERROR
    again = "I1 torch/distributed/elastic/agent/server/api.py:900] Restarting worker group\n"
    assert read_tail(log + again).ranks == ()


def test_a_bare_line_never_proves_a_bug_by_its_name_alone() -> None:
    assert classify(exit_1("ValueError: x"))[0] is FailureClass.UNKNOWN
    assert classify(exit_1(HEAD + "ValueError: x"))[0] is FailureClass.APPLICATION_ERROR


def test_of_two_tracebacks_of_one_process_the_last_is_the_cause() -> None:
    log = f"{HEAD}ValueError: handled\n{HEAD}ConnectionResetError: [Errno 104] reset\n"
    assert classify(exit_1(log))[0] is FailureClass.COMMUNICATION_ERROR


def test_a_deterministic_error_after_a_lost_connection_is_not_certain() -> None:
    chain = "\nThe above exception was the direct cause of the following exception:\n\n"
    log = f"{HEAD}ConnectionResetError: [Errno 104] reset\n{chain}{HEAD}ValueError: no data\n"
    kind, reason = classify(exit_1(log, error_type="ValueError", message="no data"))
    assert kind is FailureClass.UNKNOWN
    assert "ConnectionResetError" in reason


@pytest.mark.parametrize(
    ("held", "expected"),
    [
        ("Process 9 has 70.00 GiB memory in use.", FailureClass.ACCELERATOR_FAILURE),
        (
            "Process 9 has 70.00 GiB memory in use. Including non-PyTorch memory, this process "
            "has 1.00 GiB memory in use.",
            FailureClass.ACCELERATOR_FAILURE,
        ),
        (
            "Process 9 has 512.00 MiB memory in use. Including non-PyTorch memory, this process "
            "has 78.00 GiB memory in use.",
            FailureClass.RESOURCE_EXHAUSTED,
        ),
        (
            "Process 9 has 39.00 GiB memory in use. Process 8 has 39.00 GiB memory in use. Of the "
            "allocated memory 38.00 GiB is allocated by PyTorch",
            FailureClass.RESOURCE_EXHAUSTED,
        ),
    ],
)
def test_gpu_memory_held_by_another_process_is_not_the_scripts_fault(
    held: str, expected: FailureClass
) -> None:
    message = f"CUDA out of memory. Tried to allocate 512.00 MiB. {held}"
    assert classify(exit_1("", error_type="OutOfMemoryError", message=message))[0] is expected


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        ("CUDA error: an illegal memory access was encountered", FailureClass.ACCELERATOR_FAILURE),
        ("CUDA error: unknown error", FailureClass.UNKNOWN),
        ("cuDNN error: CUDNN_STATUS_ALLOC_FAILED", FailureClass.RESOURCE_EXHAUSTED),
        ("CUDA error: CUBLAS_STATUS_NOT_INITIALIZED", FailureClass.UNKNOWN),
        ("unable to write to file </torch_1_2_3>", FailureClass.RESOURCE_EXHAUSTED),
        ("Too many open files. Communication with the workers", FailureClass.RESOURCE_EXHAUSTED),
        ("can't start new thread", FailureClass.RESOURCE_EXHAUSTED),
        ("he said: Connection reset by peer", FailureClass.UNKNOWN),
        ("the loss", FailureClass.UNKNOWN),
    ],
)
def test_a_runtime_error_is_known_by_how_its_message_begins(
    message: str, expected: FailureClass
) -> None:
    assert classify(exit_1("", error_type="RuntimeError", message=message))[0] is expected


@pytest.mark.parametrize("code", [137, 143])
def test_a_child_s_error_file_does_not_explain_a_kill(code: int) -> None:
    seen = Evidence(ended_by=EndedBy.EXIT, exit_code=code, error_type="ValueError", message="x")
    assert classify(seen)[0] is not FailureClass.APPLICATION_ERROR


@pytest.mark.parametrize(
    ("error_type", "message", "expected"),
    [
        ("HTTPError", "HTTP Error 404: Not Found", FailureClass.UNKNOWN),
        (
            "HTTPError",
            "429 Client Error: Too Many",
            FailureClass.COMMUNICATION_ERROR,
        ),
        ("HTTPError", "401 Client Error: Unauthorized for url", FailureClass.UNKNOWN),
        ("URLError", "<urlopen error unknown url type: s3>", FailureClass.UNKNOWN),
        ("SSLError", "[SSL: CERTIFICATE_VERIFY_FAILED] x", FailureClass.UNKNOWN),
        ("EOFError", "", FailureClass.UNKNOWN),
        ("SignalException", "Process 7 got signal: 15", FailureClass.PREEMPTION),
        (
            "SafetensorError",
            "I/O error: x (os error 28)",
            FailureClass.RESOURCE_EXHAUSTED,
        ),
    ],
)
def test_types_that_mean_several_things_go_by_their_message(
    error_type: str, message: str, expected: FailureClass
) -> None:
    assert classify(exit_1("", error_type=error_type, message=message))[0] is expected


def test_a_bus_error_with_the_loader_s_own_words_is_about_shared_memory() -> None:
    words = "ERROR: Unexpected bus error encountered in worker. This might be caused by"
    seen = Evidence(ended_by=EndedBy.SIGNAL, signal=7, log_tail=f"{words} insufficient shm.\n")
    kind, reason = classify(seen)
    assert kind is FailureClass.RESOURCE_EXHAUSTED
    assert "shared memory" in reason


@pytest.mark.parametrize(
    ("last", "expected"),
    [
        ("socketProgressOpt: Call to recv failed", FailureClass.COMMUNICATION_ERROR),
        ("Duplicate GPU detected : rank 0 and rank 1", FailureClass.APPLICATION_ERROR),
        ("Cuda failure 2 'out of memory'", FailureClass.RESOURCE_EXHAUSTED),
    ],
)
def test_nccl_s_last_error_belongs_to_its_message(last: str, expected: FailureClass) -> None:
    first = "torch.distributed.DistBackendError: NCCL error in: x.cpp:1, NCCL version 2.19.3"
    log = f"{HEAD}{first}\nncclSystemError: System call failed. \nLast error:\n{last}\n"
    assert classify(exit_1(log))[0] is expected
    assert classify(exit_1(f"{log}step 2\n"))[0] is FailureClass.UNKNOWN
