"""Names of steps and parts, and manifests from any bytes."""

import json
import string

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flashruntime.checkpoint.manifest import (
    MAX_STEP,
    check_part_keys,
    check_step,
    decode,
    parse_step_name,
    seal,
    step_name,
    unseal,
)
from flashruntime.errors import CheckpointError, InvalidInput
from flashruntime.protocol.checkpoints import Manifest

FIELDS = {
    "schema_version": "v1alpha1",
    "manifest_id": "ckpt-1",
    "job_id": "job-1",
    "attempt_id": "attempt-1",
    "step": 7,
    "framework": "none",
    "world_size": 1,
    "compatible_world_sizes": [1],
    "parts": [{"key": "model.bin", "sha256": "0" * 64, "size_bytes": 3}],
    "validation": "hash_verified",
    "created": "2026-01-01T00:00:00+00:00",
    "checkpoint_duration_s": 0.1,
    "metadata": {},
}
steps = st.integers(0, MAX_STEP)
json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=10,
)


@given(steps)
def test_every_step_has_one_name_that_reads_back(step):
    assert parse_step_name(step_name(step)) == step


@given(steps, steps)
def test_steps_of_equal_width_sort_like_their_names(first, second):
    if len(step_name(first)) == len(step_name(second)):
        assert (first < second) == (step_name(first) < step_name(second))


@given(st.text(alphabet=string.digits + "-step_ \u0663\n", max_size=24))
def test_a_name_counts_only_in_its_one_spelling(name):
    step = parse_step_name(name)
    assert step is None or step_name(step) == name


@pytest.mark.parametrize(
    "name",
    ["step-7", "step-0000007", "step_000007", "Step-000007", "step-000007 ", "step-\u0667"],
)
def test_057_a_second_spelling_of_a_step_is_no_step(name):
    assert parse_step_name(name) is None


@pytest.mark.parametrize("step", [-1, 1.5, True, 10**20, "7", None, float("nan")])
def test_071_what_is_no_step_is_refused_by_name(step):
    with pytest.raises(InvalidInput, match="step must be an integer"):
        check_step(step)


def test_071_a_number_with_an_index_is_a_step():
    class Int64:
        def __index__(self) -> int:
            return 7

    assert check_step(Int64()) == 7


@given(st.binary(max_size=200) | json_values.map(lambda value: json.dumps(value).encode()))
def test_any_bytes_are_a_manifest_or_a_checkpoint_error(data):
    with pytest.raises(CheckpointError):
        decode(data)


@given(st.dictionaries(st.text().filter(lambda key: key != "digest"), json_values))
def test_a_sealed_object_reads_back_as_it_was(content):
    assert {k: v for k, v in unseal(seal(content)).items() if k != "digest"} == content


@given(st.integers(0, len(seal(FIELDS)) - 2), st.integers(0, 7))
def test_a_flipped_bit_anywhere_in_a_manifest_is_noticed(place, bit):
    data = bytearray(seal(FIELDS))
    data[place] ^= 1 << bit
    try:
        manifest = decode(bytes(data))
    except CheckpointError:
        return
    assert manifest == decode(seal(FIELDS)), "only the case of the digest's letters may change"


def test_fields_of_a_newer_version_are_covered_by_the_digest_and_ignored():
    assert decode(seal({**FIELDS, "later": [1]})).step == 7


def test_the_sealed_form_is_strict_json_with_the_contracts_fields():
    content = json.loads(seal(FIELDS))
    assert set(content) == set(Manifest.model_fields)


@pytest.mark.parametrize(
    "keys",
    [["../a"], ["/etc/hostname"], ["a\\b"], [""], ["manifest.json"], ["Manifest.JSON"], ["."],
     [".hidden"], ["a/b"], ["a\n"], ["a\0"], ["x" * 201], ["a", "A"], ["caf\u00e9.pt"]],
)  # fmt: skip
def test_053_and_073_a_part_key_that_is_no_plain_name_is_refused(keys):
    with pytest.raises(InvalidInput):
        check_part_keys(keys)
    parts = [{"key": key, "sha256": "0" * 64, "size_bytes": 1} for key in keys]
    with pytest.raises(CheckpointError, match="breaks the format at 'parts"):
        decode(seal({**FIELDS, "parts": parts}))
