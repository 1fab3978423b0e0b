"""Training state becomes parts and comes back as it was."""

import pytest

pytestmark = pytest.mark.torch


def round_trip(state):
    from flashruntime.torch.state import Packer, unpack

    return unpack({key: bytearray(part) for key, part in Packer().pack(state).items()})


def size_bytes(state):
    from flashruntime.torch.state import Packer

    return sum(len(part) for part in Packer().pack(state).values())


def test_plain_values_tensors_and_numpy_arrays_come_back_equal():
    import numpy
    import torch

    state = {
        "plain": [None, True, 3, 2.5, 1 + 2j, "text", b"raw", (1, (2,)), {1: "one", None: 0}],
        "torch": [torch.float16, torch.device("cpu"), torch.Size([2, 3])],
        "tensor": torch.arange(6).reshape(2, 3).t(),
        "array": numpy.arange(5, dtype=numpy.uint16),
    }
    back = round_trip({**state, "scalar": numpy.float64(0.1)})
    assert back["plain"] == state["plain"]
    assert back["torch"] == state["torch"]
    assert torch.equal(back["tensor"], state["tensor"])
    assert isinstance(back["array"], numpy.ndarray)
    assert back["array"].dtype == numpy.uint16
    assert back["array"].tolist() == list(range(5))
    assert (type(back["scalar"]), back["scalar"]) == (float, 0.1)


@pytest.mark.parametrize("value", [{1, 2}, object(), len, [{"deep": {3}}]])
def test_what_would_need_code_to_load_is_refused_by_name(value):
    from flashruntime.errors import InvalidInput
    from flashruntime.torch.state import Packer

    with pytest.raises(InvalidInput, match=r"state 'ledger\.bad"):
        Packer().pack({"ledger": {"bad": value}})


def test_a_numpy_number_that_python_lacks_is_refused_by_name():
    import numpy

    from flashruntime.errors import InvalidInput
    from flashruntime.torch.state import Packer

    with pytest.raises(InvalidInput, match=r"state 'loss'"):
        Packer().pack({"loss": numpy.longdouble(1)})


def test_memory_that_cannot_be_had_ahead_of_a_save_is_no_error():
    """What fails in it would be raised as the error of a save that nobody has asked for."""
    from flashruntime.torch.state import Packer

    class Changing(dict):
        def items(self):
            raise RuntimeError("dictionary changed size during iteration")

    packer = Packer()
    packer.reserve({"counts": Changing()})
    assert packer._buffers._pieces == []


def test_069_a_view_takes_the_room_of_its_own_elements():
    import torch

    big = torch.zeros(1_000_000)
    assert size_bytes({"v": big[:10]}) < 10_000
    back = round_trip({"v": big[:10], "again": big[:10]})
    back["v"].add_(1)
    assert torch.equal(back["v"], back["again"]), "equal views stay one"


def test_069_views_are_copied_one_at_a_time(monkeypatch):
    """Next to the parts there is never more than one view's copy."""
    import weakref

    import torch

    from flashruntime.torch.savable import Block
    from flashruntime.torch.state import Packer

    living, most = weakref.WeakSet(), []
    original = Block.content

    def content(block):
        copy = original(block)
        living.add(copy)
        most.append(len(living))
        return copy

    monkeypatch.setattr(Block, "content", content)
    base = torch.arange(1000.0)
    Packer().pack({f"view-{n}": base[n * 100 : n * 100 + 90] for n in range(10)})
    assert len(most) == 10
    assert max(most) <= 2, "the one before goes when the next one is there"


def test_069_views_that_make_up_their_base_keep_sharing_it():
    import torch

    base = torch.arange(1000.0)
    back = round_trip({"left": base[:500], "right": base[500:]})
    left, right = back["left"], back["right"]
    assert left.untyped_storage().data_ptr() == right.untyped_storage().data_ptr()


def test_069_tied_weights_stay_tied():
    import torch

    shared = torch.nn.Parameter(torch.ones(50_000))
    state = {"emb": shared, "head": shared}
    assert size_bytes(state) < 1.2 * 200_000
    back = round_trip(state)
    with torch.no_grad():
        back["emb"].add_(1)
    assert torch.equal(back["head"], back["emb"])


def test_the_versions_that_a_module_notes_in_its_state_survive():
    import torch

    state = torch.nn.BatchNorm1d(3).state_dict()
    state["extra"] = torch.zeros(1000)[:1]
    assert round_trip(state)._metadata == state._metadata


def test_a_state_larger_than_a_part_is_split():
    import torch

    from flashruntime.torch.state import PART_BYTES, Packer

    big = torch.arange(PART_BYTES // 2, dtype=torch.float32)
    parts = Packer().pack({"big": big})
    tensors = {key: len(part) for key, part in parts.items() if key.startswith("tensors-")}
    assert tensors == {"tensors-00000.bin": PART_BYTES, "tensors-00001.bin": PART_BYTES}
    assert torch.equal(round_trip({"big": big})["big"], big)


@pytest.mark.parametrize("sizes", [(10, 9_000_000, 10), (9_000_000, 10, 9_000_000)])
def test_buffers_are_reused_without_a_trace_of_the_save_before(sizes):
    import torch

    from flashruntime.torch.state import Packer, unpack

    packer = Packer()
    for number, size in enumerate(sizes):
        parts = packer.pack({"w": torch.full((size,), number)})
        back = unpack({key: bytearray(part) for key, part in parts.items()})
        assert torch.equal(back["w"], torch.full((size,), number))


def test_a_checkpoint_of_an_earlier_version_is_still_read():
    import io

    import torch

    from flashruntime.torch.state import unpack

    tied = torch.nn.Parameter(torch.arange(6.0))
    sink = io.BytesIO()
    array = {"flashruntime.numpy": torch.arange(3)}
    torch.save({"objects": {"a": tied, "b": tied}, "array": array, "n": (1, [2])}, sink)
    data = sink.getvalue()
    state = unpack({"state-00000.bin": bytearray(data[:700]),
                    "state-00001.bin": bytearray(data[700:])})  # fmt: skip
    assert torch.equal(state["objects"]["a"], tied)
    assert state["objects"]["a"] is state["objects"]["b"]
    assert (state["array"].tolist(), state["n"]) == ([0, 1, 2], (1, [2]))


def test_kinds_of_tensors_that_are_not_plain_come_back_too():
    import numpy
    import torch

    sparse = torch.eye(3).to_sparse()
    quantized = torch.quantize_per_tensor(torch.arange(4.0), 0.5, 0, torch.qint8)
    state = {
        "sparse": sparse,
        "quantized": quantized,
        "conjugate": torch.tensor([1 + 2j]).conj(),
        "none": torch.zeros(0, 3),
        "scalar": torch.tensor(3.5, dtype=torch.bfloat16),
        "transposed": torch.arange(6).reshape(2, 3).t(),
        "column": torch.arange(9).reshape(3, 3)[:, 1],
        "backwards": numpy.arange(5)[::-1],
        "expanded": torch.ones(1).expand(4),
    }
    back = round_trip(state)
    assert torch.equal(back["sparse"].to_dense(), torch.eye(3))
    assert torch.equal(back["quantized"].dequantize(), quantized.dequantize())
    assert back["conjugate"].tolist() == [1 - 2j]
    assert (back["none"].shape, back["scalar"].item()) == ((0, 3), 3.5)
    assert back["transposed"].tolist() == state["transposed"].tolist()
    assert back["transposed"].stride() == state["transposed"].stride()
    assert back["column"].tolist() == [1, 4, 7]
    assert back["backwards"].tolist() == [4, 3, 2, 1, 0]
    assert back["expanded"].tolist() == [1, 1, 1, 1]


def test_063_what_is_not_plain_is_that_of_the_call_too():
    import torch

    from flashruntime.torch.state import Packer, unpack

    sparse, numbers = torch.eye(3).to_sparse(), [1]
    make_parts = Packer().stage({"sparse": sparse, "list": numbers})
    sparse.mul_(7)
    numbers.append(2)
    back = unpack({key: bytearray(part) for key, part in make_parts().items()})
    assert torch.equal(back["sparse"].to_dense(), torch.eye(3))
    assert back["list"] == [1]


def test_a_tensor_larger_than_its_bytes_is_refused():
    import io

    import torch

    from flashruntime.errors import CheckpointError
    from flashruntime.torch.state import Packer, unpack

    parts = {key: bytearray(part) for key, part in Packer().pack({"w": torch.ones(8)}).items()}
    index = torch.load(io.BytesIO(parts["index.pt"]), weights_only=True)
    index["tensors"] = [(0, torch.float32, (9,), (1,), 0, False, False)]
    sink = io.BytesIO()
    torch.save(index, sink)
    parts["index.pt"] = bytearray(sink.getvalue())
    with pytest.raises(CheckpointError, match="its bytes do not fill"):
        unpack(parts)


def test_c3_a_checkpoint_that_carries_code_does_not_load(tmp_path):
    import io
    import os

    import torch

    from flashruntime.errors import CheckpointError
    from flashruntime.torch.state import unpack

    class Evil:
        def __reduce__(self):
            return os.mkdir, (str(tmp_path / "evil"),)

    sink = io.BytesIO()
    torch.save({"x": Evil()}, sink)
    with pytest.raises(CheckpointError, match="does not load"):
        unpack({"state-00000.bin": bytearray(sink.getvalue())})
    assert not (tmp_path / "evil").exists()
