"""From a job to its tasks."""

import json
import tracemalloc
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from flashruntime.errors import InvalidInput
from flashruntime.protocol.argv import substitute
from flashruntime.protocol.jobs import JobSpec
from flashruntime.service.expand import expand

NAMES = st.text(st.characters(codec="utf-8", exclude_characters="\0"), min_size=1, max_size=8)
TEXTS = st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=20)


def spec(kind: str, **parameters: Any) -> JobSpec:
    return JobSpec.model_validate(
        {
            "apiVersion": "flashml.dev/v1alpha1",
            "kind": "Job",
            "metadata": {"name": "j"},
            "spec": {"workload": {"type": kind, "parameters": parameters}},
        }
    )


def test_087_only_named_placeholders_are_replaced_and_all_other_braces_are_literal() -> None:
    script = "echo '{\"lr\": \"{lr}\"}' | awk '{print $1}'; echo ${HOME} {"
    command = ["sh", "-c", script, "{lr.__class__}", "{0}", "{", "{{lr}}", "{ lr }"]
    assert substitute(command, {"lr": 0.1}) == [
        "sh",
        "-c",
        "echo '{\"lr\": \"0.1\"}' | awk '{print $1}'; echo ${HOME} {",
        "{lr.__class__}",
        "{0}",
        "{",
        "{0.1}",
        "{ lr }",
    ]


def test_a_value_that_looks_like_a_placeholder_is_not_replaced_again() -> None:
    assert substitute(["{a}{b}"], {"a": "{b}", "b": "{a}"}) == ["{b}{a}"]


def test_text_goes_in_as_it_is_and_other_values_as_json() -> None:
    params = {"a": "x y", "b": True, "c": None, "d": [1, "z"], "e": 1e-05}
    assert substitute(["{a}|{b}|{c}|{d}|{e}"], params) == ['x y|true|null|[1,"z"]|1e-05']


@given(st.lists(TEXTS, min_size=1, max_size=4), NAMES, TEXTS)
def test_substitution_of_one_name_is_plain_text_replacement(
    command: list[str], name: str, value: str
) -> None:
    command = [*command, "{" + name + "}"]
    assert substitute(command, {name: value}) == [
        argument.replace("{" + name + "}", value) for argument in command
    ]


def test_a_parameter_that_no_argument_uses_is_an_error_that_names_it() -> None:
    with pytest.raises(InvalidInput, match="'momentum'"):
        expand(spec("command", command=["t", "{lr}"], task_params=[{"lr": 1, "momentum": 2}]))


def test_a_value_with_nul_is_refused() -> None:
    with pytest.raises(InvalidInput, match="NUL"):
        substitute(["{a}"], {"a": "x\0y"})


def test_a_command_without_parameters_is_one_task() -> None:
    (payload,) = expand(spec("command", command=["echo", "{x}"], env={"A": "{x}"}))
    assert (payload.command, payload.env, payload.params) == (["echo", "{x}"], {"A": "{x}"}, {})


def test_task_params_make_one_task_each_in_order() -> None:
    payloads = expand(spec("command", command=["t", "{i}"], task_params=[{"i": 2}, {"i": 1}]))
    assert [payload.command for payload in payloads] == [["t", "2"], ["t", "1"]]
    assert [payload.params for payload in payloads] == [{"i": 2}, {"i": 1}]


@given(st.dictionaries(NAMES, st.lists(st.integers(), min_size=1, max_size=3), max_size=4))
def test_a_grid_is_the_cartesian_product_in_key_order(grid: dict[str, list[int]]) -> None:
    if not grid:
        return
    payloads = expand(spec("hyperparameter_search", grid=grid))
    found = [tuple(payload.params.values()) for payload in payloads]
    assert all(list(payload.params) == list(grid) for payload in payloads)
    size = 1
    for values in grid.values():
        size *= len(values)
    assert len(found) == size
    positions = [
        [values.index(value) for value, values in zip(row, grid.values(), strict=True)]  # type: ignore[arg-type]
        for row in found
    ]
    assert positions == sorted(positions) or any(len(set(v)) < len(v) for v in grid.values())


@pytest.mark.parametrize("parameters", [{}, {"grid": {"a": [1]}, "trials": [{"a": 1}]}])
def test_a_search_needs_either_trials_or_grid(parameters: dict[str, Any]) -> None:
    with pytest.raises(InvalidInput, match="either"):
        expand(spec("hyperparameter_search", **parameters))


def test_a_fan_out_that_would_need_too_much_room_is_refused() -> None:
    many = [{"i": index} for index in range(10_000)]
    with pytest.raises(InvalidInput, match="limit"):
        expand(spec("command", command=["t", "{i}", "x" * 100_000], task_params=many))


def test_json_arguments_survive() -> None:
    argument = json.dumps({"a": {"b": 1}, "c": "{d}"})
    (payload,) = expand(spec("command", command=["t", argument]))
    assert payload.command == ["t", argument]


@pytest.mark.parametrize("paths", [["a", "a"], ["a", "a/b"], ["a/b/c", "a"], ["a/b/c/d", "a/b"]])
@pytest.mark.parametrize("kind", ["command", "hyperparameter_search"])
def test_inputs_that_cannot_lie_in_one_directory_are_refused(kind: str, paths: list[str]) -> None:
    inputs = [{"path": path, "key": "k", "sha256": "0" * 64} for path in paths]
    with pytest.raises(ValidationError, match="input"):
        spec(kind, command=["true"], inputs=inputs)


def test_inputs_beside_one_another_are_fine() -> None:
    paths = ["a", "ab/c", "ab/d", "abc"]
    inputs = [{"path": path, "key": "k", "sha256": "0" * 64} for path in paths]
    (payload,) = expand(spec("command", command=["true"], inputs=inputs))
    assert [file.path for file in payload.inputs] == paths


@pytest.mark.parametrize("name", ["", "x" * 257])
def test_a_grid_names_its_parameters_as_a_trial_does(name: str) -> None:
    """Else its tasks could be stored and never read again."""
    for parameters in ({"grid": {name: [1]}}, {"trials": [{name: 1}]}):
        with pytest.raises(ValidationError):
            spec("hyperparameter_search", **parameters)


@pytest.mark.parametrize(
    ("kind", "parameters"),
    [
        ("command", {"command": ["{x}"] * 1_000, "task_params": [{"x": "a" * 600_000}]}),
        ("command", {"command": ["{x}" * 1_000], "task_params": [{"x": "a" * 600_000}]}),
        (
            "hyperparameter_search",
            {"grid": {key: [key * 90_000 + str(i) for i in range(60)] for key in "ab"}},
        ),
    ],
)
def test_a_small_body_that_would_grow_beyond_the_limit_is_refused_before_it_does(
    kind: str, parameters: dict[str, Any]
) -> None:
    job = spec(kind, **parameters)
    tracemalloc.start()
    try:
        with pytest.raises(InvalidInput, match="the limit is"):
            expand(job)
        _, peak_bytes = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak_bytes < 32 * 1024 * 1024
