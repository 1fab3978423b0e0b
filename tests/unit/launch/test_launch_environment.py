"""What a job's process inherits, is given, and never sees."""

import os

import pytest

from flashruntime.launch.environment import HOOK_DIR, child_environment, is_inherited


@pytest.mark.parametrize(
    "name",
    [
        "FLASHML_TOKEN",
        "AWS_SECRET_ACCESS_KEY",
        "HF_TOKEN",
        "NCCL_PASSWORD",
        "CUDA_API_KEY",
        "SSH_AUTH_SOCK",
        "FLASHML_COORDINATOR_URL",
    ],
)
def test_secrets_and_settings_of_the_worker_are_kept_back(name: str) -> None:
    assert not is_inherited(name)
    assert name not in child_environment({name: "x"}, {}, {})


@pytest.mark.parametrize(
    "name",
    [
        "PATH",
        "HOME",
        "LANG",
        "LC_ALL",
        "LD_LIBRARY_PATH",
        "CUDA_VISIBLE_DEVICES",
        "NCCL_DEBUG",
        "OMP_NUM_THREADS",
    ],
)
def test_what_a_training_needs_is_inherited(name: str) -> None:
    assert child_environment({name: "x"}, {}, {})[name] == "x"


def test_the_job_overrides_what_is_inherited_and_the_runtime_overrides_the_job() -> None:
    env = child_environment(
        {"LANG": "C"}, {"LANG": "C.UTF-8", "FLASHML_JOB_ID": "mine"}, {"FLASHML_JOB_ID": "job-1"}
    )
    assert (env["LANG"], env["FLASHML_JOB_ID"]) == ("C.UTF-8", "job-1")


def test_a_secret_that_the_job_was_given_reaches_it() -> None:
    assert child_environment({}, {"HF_TOKEN": "t"}, {})["HF_TOKEN"] == "t"


def test_output_is_unbuffered_unless_the_job_says_otherwise() -> None:
    assert child_environment({}, {}, {})["PYTHONUNBUFFERED"] == "1"
    assert child_environment({}, {"PYTHONUNBUFFERED": ""}, {})["PYTHONUNBUFFERED"] == ""


def test_the_hook_stands_before_the_python_path() -> None:
    env = child_environment({"PYTHONPATH": "/agent"}, {"PYTHONPATH": "/job"}, {})
    assert env["PYTHONPATH"] == f"{HOOK_DIR}{os.pathsep}/job"
    assert child_environment({}, {}, {})["PYTHONPATH"] == str(HOOK_DIR)
