"""Two training states are told apart bit for bit: which tensor, which stream, which sample."""

import random

import pytest
import torch

pytestmark = pytest.mark.torch


@pytest.fixture
def saved(tmp_path):
    """Save a state as the helper would and read it back."""
    from flashruntime.checkpoint import Chain, Claim, Snapshot
    from flashruntime.torch.state import Packer

    def save(name, state, step=8):
        chain = Chain.begin(tmp_path / name, Claim(f"a-{name}", "job"))
        chain.save(Snapshot(step, Packer().pack(state), framework="torch"))
        return chain.resume()

    return save


def state(weight=None, **changes):
    model = {"0.weight": torch.zeros(3) if weight is None else weight, "n": 3}
    rng = {"python": random.Random(1).getstate(), "torch": torch.zeros(4, dtype=torch.uint8)}
    data = {"epoch": 2, "batch": 2, "start": rng, "size": 9, "batch_size": 3}
    return {"objects": {"model": model}, "rng": rng, "data": data, **changes}


def compare(saved, first, second, step=8):
    from flashruntime.torch.difference import compare_states

    return compare_states(saved("a", first, step), saved("b", second, step))


def test_equal_states_say_what_was_compared_and_that_each_sample_came_once(saved):
    found = compare(saved, state(), state())
    assert found.differences == []
    assert found.facts == [
        "1 tensors with 3 values",
        "RNG streams python, torch",
        "sample position: epoch 2, batch 2; 8 batches in 8 steps: "
        "each sample exactly once an epoch",
    ]


def test_a_position_that_does_not_match_the_steps_proves_nothing_of_samples(saved):
    found = compare(saved, state(), state(), step=9)
    assert found.facts[-1] == "sample position: epoch 2, batch 2"


@pytest.mark.parametrize(
    ("first", "second", "detail"),
    [
        (torch.zeros(3), torch.tensor([0.0, 0.0, -0.0]), "1 of 3 values, the first at index 2"),
        (torch.zeros(3), torch.zeros(3, dtype=torch.float64), "float64[3] instead of float32[3]"),
        (torch.zeros(3), torch.zeros(1, 3), "float32[1, 3] instead of float32[3]"),
        (torch.tensor(1.0).bfloat16(), torch.tensor(2.0).bfloat16(), "2.0 instead of 1.0"),
        (torch.zeros(3), 0.0, "0.0 instead of float32[3]"),
    ],
)
def test_a_tensor_is_named_with_what_differs_in_it(saved, first, second, detail):
    (found,) = compare(saved, state(first), state(second)).differences
    assert found.what == "tensor model.0.weight"
    assert detail in found.detail


def test_nans_of_the_same_bits_are_equal(saved):
    weight = torch.tensor([float("nan"), 1.0])
    assert compare(saved, state(weight), state(weight.clone())).differences == []


def test_an_array_and_its_view_are_equal_where_their_values_are(saved):
    """The bytes of the parts differ: one base is larger. The state is the same."""
    base = torch.arange(6.0)
    assert compare(saved, state(base[:3]), state(base[:3].clone())).differences == []


def test_streams_positions_and_orders_are_named_before_what_follows_from_them(saved):
    streams = {"python": random.Random(2).getstate(), "torch": torch.ones(4, dtype=torch.uint8)}
    drawn = [{**state()["rng"], "generators": [torch.full((4,), n)]} for n in (0, 1)]
    first = state(data={**state()["data"], "start": drawn[0]})
    data = {**first["data"], "batch": 1, "start": drawn[1]}
    found = compare(saved, first, state(torch.ones(3), rng=streams, data=data)).differences
    assert [(each.what, each.is_stream) for each in found] == [
        ("sample position batch", False),
        ("sample order of the epoch under way (RNG stream of the loader's generator 0)", True),
        ("RNG stream python", True),
        ("RNG stream torch", True),
        ("tensor model.0.weight", False),
    ]
    assert found[0].detail == "1 instead of 2"


def test_what_is_no_state_of_the_helper_is_compared_part_by_part(tmp_path):
    from flashruntime.checkpoint import Chain, Claim, Snapshot
    from flashruntime.torch.difference import compare_states

    def save(name, data):
        chain = Chain.begin(tmp_path / name, Claim(f"a-{name}", "job"))
        chain.save(Snapshot(1, {"own.bin": data}, framework="torch"))
        return chain.resume()

    found = compare_states(save("a", b"one"), save("b", b"two"))
    assert [each.what for each in found.differences] == ["part own.bin"]


def test_of_several_ranks_the_one_that_differs_is_named(tmp_path):
    from flashruntime.checkpoint import Chain, Claim, Snapshot
    from flashruntime.torch.difference import compare_states
    from flashruntime.torch.shared import pack, parts_of_ranks
    from flashruntime.torch.state import Packer

    def save(name, *others):
        packed = [memoryview(pack(Packer().pack(each))) for each in others]
        parts = {**Packer().pack(state()), **parts_of_ranks([memoryview(b""), *packed])}
        chain = Chain.begin(tmp_path / name, Claim(f"a-{name}", "job"))
        chain.save(Snapshot(8, parts, framework="torch", world_size=1 + len(others)))
        return chain.resume()

    own = {"objects": {"ledger": {"seen": [1, 2]}}, "data": None}
    stream = {"torch": torch.zeros(4, dtype=torch.uint8)}
    other = {"torch": torch.tensor([0, 0, 1, 0], dtype=torch.uint8)}
    here = save("a", {**own, "rng": stream}, {**own, "rng": stream})
    there = save("b", {**own, "rng": stream}, {"objects": {}, "data": None, "rng": other})
    found = compare_states(here, there)
    assert [(each.what, each.is_stream) for each in found.differences] == [
        ("RNG stream torch of rank 2", True),
        ("value ledger of rank 2", False),
    ]
    assert found.facts[0] == "1 tensors with 3 values of 3 ranks"
    fewer = save("c", {**own, "rng": stream})
    (difference,) = compare_states(here, fewer).differences
    assert (difference.what, difference.detail) == ("number of ranks", "2 instead of 3")
