"""What a script forgets to hand over: `verify-resume` finds it and says where to look."""

import textwrap

import pytest

pytestmark = pytest.mark.torch

SCRIPT = """
    import random, time
    import torch
    from torch import nn
    from torch.utils.data import DataLoader
    import flashruntime.torch as ft

    class Data:
        def __init__(self):
            self.x = torch.randn(48, 8)
            self.own = torch.Generator().manual_seed(5)

        def __len__(self):
            return 48

        def __getitem__(self, index):
            x = self.x[index]
            return x, x.sum(), index

    class Seen:
        counts = torch.zeros(48, dtype=torch.int64)

        def state_dict(self):
            return {"counts": self.counts}

        def load_state_dict(self, state):
            self.counts = state["counts"]

    torch.manual_seed(0)
    random.seed(0)
    torch.set_num_threads(1)
    model = nn.Sequential(nn.Linear(8, 16), nn.Dropout(0.2), nn.Linear(16, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda number: 0.97**number)
    own, scale, seen = random.Random(3), torch.ones(()), Seen()
    loader = DataLoader(Data(), 4, shuffle=True)
    model, optimizer, loader = ft.prepare(
        model, optimizer, loader, scheduler=scheduler, seen=seen
    )
    step = ft.start_step()
    while step < 30:
        for x, y, ids in loader:
            optimizer.zero_grad()
            loss = ((model(x)[:, 0] - y) ** 2).mean()
            loss.backward()
            optimizer.step()
            scheduler.step()
            seen.counts[ids] += 1
            step += 1
            time.sleep(0.01)
            ft.checkpoint(model, optimizer, step=step, every=2)
            if step >= 30:
                break
"""
LEARNING = "loss = ((model(x)[:, 0] - y) ** 2).mean()"
HINT = "hint: random streams and sample position are equal: look for state that prepare was not"
PLANTS = {
    "a random.Random of the script's own": (
        [(LEARNING, f"{LEARNING} * own.random()")],
        [HINT, "differs: tensor model.0.weight: 128 of 128 values"],
    ),
    "a scheduler that prepare was not given": (
        [("scheduler=scheduler, ", "")],
        [HINT, "differs: value optimizer.param_groups.0.lr: "],
    ),
    "a tensor that is changed outside": (
        [(LEARNING, f"{LEARNING} * scale.mul_(0.9)")],
        [HINT, "differs: tensor model.0.weight: 128 of 128 values"],
    ),
    "a generator that a data set keeps in a worker": (
        [
            ("x = self.x[index]", "x = self.x[index] + torch.rand((), generator=self.own)"),
            ("shuffle=True", "shuffle=True, num_workers=1, persistent_workers=True"),
        ],
        [HINT, "differs: tensor model.0.weight: 128 of 128 values"],
    ),
}
LOADER = [("model, optimizer, loader = ft", "model, optimizer, _ = ft"), ("loader, sch", "sch")]


@pytest.fixture
def examine(verify, tmp_path):
    """Run the verb on the script with some of its text replaced; return what it shows."""

    def run(replacements):
        code = textwrap.dedent(SCRIPT)
        for old, new in replacements:
            assert old in code
            code = code.replace(old, new)
        (tmp_path / "source").mkdir()
        (tmp_path / "source" / "train.py").write_text(code)
        return verify("python train.py", "--source", tmp_path / "source", "--kills", 1)

    return run


def test_a_loader_that_prepare_was_not_given_is_told_with_the_sample_that_came_twice(examine):
    status, shown = examine(LOADER)
    assert status == 1
    assert "NOT PROVEN: the resumed run differs from the undisturbed one" in shown
    assert "no dataloader was given to prepare: what samples come next is in no check" in shown
    lines = shown[shown.index("  first in the checkpoint of step ") :].splitlines()
    assert "one kill at step 1" in lines[0]
    assert lines[1].startswith("    RNG stream torch: ")
    assert any(line.startswith("    tensor seen.counts: ") for line in lines[2:5])


@pytest.mark.bench_stress
def test_the_script_without_a_plant_is_exact(examine):
    status, shown = examine([])
    assert status == 0, shown


@pytest.mark.bench_stress
@pytest.mark.parametrize("plant", PLANTS)
def test_a_plant_is_found_and_the_hint_says_where_to_look(examine, plant):
    replacements, expected = PLANTS[plant]
    status, shown = examine(replacements)
    assert status == 1, shown
    for words in expected:
        assert words in shown
    assert "first in the checkpoint of step 1" in shown or "of step 2" in shown
