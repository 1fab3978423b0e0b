"""prepare and checkpoint: what they save, restore and refuse."""

import json
import random
from pathlib import Path

import pytest

pytestmark = pytest.mark.torch


@pytest.fixture
def start(tmp_path):
    """Begin a session, as a new process of the next attempt would."""
    from flashruntime.attempt import Attempt, Settings
    from flashruntime.checkpoint import Claim
    from flashruntime.torch.session import Session

    begun = []

    def begin():
        if begun:
            begun[-1].attempt.flush()
        claim = Claim(f"attempt-{len(begun)}", "job-1", len(begun))
        begun.append(Session(Attempt(Settings(tmp_path / "ckpt", tmp_path, claim))))
        return begun[-1]

    yield begin
    begun[-1].attempt.flush()


def network(width=4):
    import torch

    model = torch.nn.Sequential(torch.nn.Linear(3, width), torch.nn.BatchNorm1d(width))
    return model, torch.optim.Adam(model.parameters())


def train(model, optimizer):
    import torch

    optimizer.zero_grad()
    model(torch.rand(5, 3)).pow(2).sum().backward()
    optimizer.step()


class Note:
    """The smallest thing with a state."""

    def __init__(self, value):
        self.value = value

    def state_dict(self):
        return {"value": self.value}

    def load_state_dict(self, state):
        self.value = state["value"]


def test_model_optimizer_streams_and_anything_with_a_state_come_back(start):
    import numpy
    import torch

    session, (model, optimizer), note = start(), network(), Note("a")
    session.prepare(model, optimizer, None, {"note": note})
    train(model, optimizer)
    session.checkpoint(model, optimizer, {"note": note}, 1, None)
    expected = (random.random(), numpy.random.rand(), torch.rand(1))
    train(model, optimizer)

    again, (other, other_optimizer), other_note = start(), network(), Note("b")
    again.prepare(other, other_optimizer, None, {"note": other_note})
    assert again.start_step == 1
    assert other_note.value == "a"
    assert (random.random(), numpy.random.rand(), torch.rand(1)) == expected
    train(other, other_optimizer)
    for one, two in zip(model.parameters(), other.parameters(), strict=True):
        assert torch.equal(one, two)


def test_069_a_tied_module_is_tied_after_a_restore(start):
    import torch

    def tied():
        model = torch.nn.ModuleDict(
            {"emb": torch.nn.Embedding(5, 3), "head": torch.nn.Linear(3, 5)}
        )
        model["head"].weight = model["emb"].weight
        return model

    session, model = start(), tied()
    session.prepare(model, None, None, {})
    session.checkpoint(model, None, {}, 1, None)
    again, other = start(), tied()
    again.prepare(other, None, None, {})
    with torch.no_grad():
        other["emb"].weight.add_(1)
    assert torch.equal(other["head"].weight, other["emb"].weight)
    assert torch.equal(other["emb"].weight, model["emb"].weight + 1)


def test_063_the_checkpoint_is_the_state_at_the_call(start):
    import torch

    session, note = start(), Note(torch.zeros(1000))
    model, _ = network()
    session.prepare(model, None, None, {"note": note})
    session.checkpoint(model, None, {"note": note}, 1, None)
    note.value.fill_(9)
    again, other = start(), Note(None)
    again.prepare(network()[0], None, None, {"note": other})
    assert torch.equal(other.value, torch.zeros(1000))


def test_what_prepare_was_given_is_saved_although_checkpoint_does_not_name_it(start):
    session, (model, optimizer), note = start(), network(), Note("a")
    session.prepare(model, optimizer, None, {"note": note})
    session.checkpoint(model, None, {}, 1, None)
    again, other = start(), Note("b")
    again.prepare(*network(), None, {"note": other})
    assert other.value == "a"


@pytest.mark.parametrize(
    ("every", "saved"), [(None, [1, 2, 3, 4]), (2, [2, 4]), (0, []), (-1, []), (False, [])]
)
def test_every_says_at_which_steps_to_save(start, tmp_path, every, saved):
    session, (model, optimizer) = start(), network()
    session.attempt.settings = type(session.attempt.settings)(
        tmp_path / "ckpt", tmp_path, session.attempt.settings.claim, keep=None
    )
    session.prepare(model, optimizer, None, {})
    for step in range(1, 5):
        session.checkpoint(model, optimizer, {}, step, every)
    session.attempt.flush()
    found = sorted(int(path.name[5:]) for path in (tmp_path / "ckpt").glob("step-*"))
    assert found == saved


@pytest.mark.parametrize("every", ["often", 1.5, "10"])
def test_an_interval_that_is_no_number_of_steps_is_refused(start, every):
    from flashruntime.errors import InvalidInput

    session, (model, optimizer) = start(), network()
    session.prepare(model, optimizer, None, {})
    with pytest.raises(InvalidInput, match="every must be a number of steps"):
        session.checkpoint(model, optimizer, {}, 1, every)


def test_auto_saves_first_to_measure_and_then_seldom(start, tmp_path):
    session, (model, optimizer) = start(), network()
    session.prepare(model, optimizer, None, {})
    for step in range(1, 50):
        train(model, optimizer)
        session.checkpoint(model, optimizer, {}, step, "auto")
    session.attempt.flush()
    found = sorted(int(path.name[5:]) for path in (tmp_path / "ckpt").glob("step-*"))
    assert found == [1]


def test_memory_for_the_first_save_is_there_before_it_is_due(start):
    import torch

    session, note = start(), Note(torch.zeros(10_000_000))
    session.prepare(network()[0], None, None, {"note": note})
    session.checkpoint(session._objects["model"], None, {}, 1, 100)
    session.attempt.flush()
    assert len(session._packer._buffers._pieces) == 2
    assert session.attempt.checkpoint_step is None


def test_021_a_model_that_does_not_fit_is_an_error_that_names_the_key(start):
    from flashruntime.errors import CheckpointError

    session, (model, optimizer) = start(), network(4)
    session.prepare(model, optimizer, None, {})
    session.checkpoint(model, optimizer, {}, 1, None)
    with pytest.raises(CheckpointError, match=r"not match this source: model: (.|\n)*0\.weight"):
        start().prepare(*network(5), None, {})
    with pytest.raises(CheckpointError, match=r"lacks \['note'\] and holds \['optimizer'\]"):
        start().prepare(network(4)[0], None, None, {"note": Note("x")})


def test_what_could_never_be_restored_is_refused_when_saving(start):
    from flashruntime.errors import InvalidInput

    session, (model, optimizer) = start(), network()
    session.prepare(model, None, None, {})
    with pytest.raises(InvalidInput, match="pass it to prepare as well"):
        session.checkpoint(model, optimizer, {}, 1, None)
    with pytest.raises(InvalidInput, match="without state_dict and load_state_dict"):
        start().prepare(model, object(), None, {})


def test_c15_a_checkpoint_that_verifies_but_does_not_load_is_set_aside(start, tmp_path, capsys):
    session, (model, optimizer) = start(), network()
    session.prepare(model, optimizer, None, {})
    session.checkpoint(model, optimizer, {}, 1, None)
    session.attempt.save(2, {"state-00000.bin": b"verifies, but is no state"})
    again = start()
    again.prepare(*network(), None, {})
    assert again.start_step == 1
    third = start()
    third.prepare(*network(), None, {})
    assert third.start_step == 1
    events = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [e["step"] for e in events if e["event"] == "checkpoint_set_aside"] == [2]
    assert [e["step"] for e in events if e["event"] == "resumed"] == [1, 1]


@pytest.mark.parametrize(
    "error",
    [
        MemoryError(),
        RuntimeError("[enforce fail at alloc_cpu.cpp] DefaultCPUAllocator: can't allocate memory"),
    ],
)
def test_a_good_checkpoint_is_not_given_up_for_want_of_memory(start, tmp_path, monkeypatch, error):
    import torch

    def load(*_, **__):
        raise error

    session, (model, optimizer) = start(), network()
    session.prepare(model, optimizer, None, {})
    session.checkpoint(model, optimizer, {}, 1, None)
    with monkeypatch.context() as poor:
        poor.setattr(torch, "load", load)
        with pytest.raises(MemoryError):
            start().prepare(*network(), None, {})
    again = start()
    again.prepare(*network(), None, {})
    assert again.start_step == 1


def poison(model):
    import torch

    with torch.no_grad():
        next(model.parameters())[0, 0] = float("nan")


def test_c15_a_state_that_is_nan_is_not_saved_and_what_gave_it_is_set_aside(start, tmp_path):
    from flashruntime.errors import NotFinite

    session, (model, optimizer) = start(), network()
    session.prepare(model, optimizer, None, {})
    for step in (1, 2):
        session.checkpoint(model, optimizer, {}, step, None)
    poison(model)
    session.checkpoint(model, optimizer, {}, 3, None)
    with pytest.raises(NotFinite, match=r"parameter 0\.weight is NaN"):
        session.attempt.flush()
    again, (model, optimizer) = start(), network()
    again.prepare(model, optimizer, None, {})
    assert again.start_step == 2, "the first NaN says nothing about the checkpoint before it"
    poison(model)
    again.checkpoint(model, optimizer, {}, 3, None)
    with pytest.raises(NotFinite):
        again.attempt.flush()
    third = start()
    third.prepare(*network(), None, {})
    assert third.start_step == 1


def test_nan_is_saved_where_it_is_allowed_or_no_parameter(start, tmp_path):
    import dataclasses

    import torch

    session, (model, _) = start(), network()
    note = Note(torch.full((3,), float("nan")))
    session.prepare(model, None, None, {"note": note})
    session.checkpoint(model, None, {"note": note}, 1, None)
    again, (model, _) = start(), network()
    again.attempt.settings = dataclasses.replace(again.attempt.settings, allow_nan=True)
    again.prepare(model, None, None, {"note": note})
    assert again.start_step == 1
    poison(model)
    again.checkpoint(model, None, {"note": note}, 2, None)
    again.attempt.flush()
    assert again.attempt.checkpoint_step == 2


def test_the_public_names_work_in_a_plain_script(forked, tmp_path):
    def script():
        import flashruntime.torch as ft

        model, optimizer = network()
        model, optimizer, loader = ft.prepare(model, optimizer)
        assert loader is None
        assert (ft.rank(), ft.world_size(), ft.is_main()) == (0, 1, True)
        assert (ft.device().type, ft.backend()) == ("cpu", "gloo")
        ft.checkpoint(model, optimizer, step=ft.start_step() + 1)
        ft.log_metrics({"loss": float("nan"), "bad": {1}})

    assert forked(script).exit_code == 0
    second = forked(script)
    assert second.exit_code == 0, second.output
    assert second.events("resumed")[0]["step"] == 1
    assert second.events("metric_left_out")[0]["key"] == "bad"
    assert json.loads(Path(tmp_path / "metrics.json").read_text()) == {"loss": None}
