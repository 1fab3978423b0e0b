"""A resumed loader hands out exactly the batches that the interrupted one had not."""

import random
import subprocess
import sys

import pytest

pytestmark = pytest.mark.torch

SAMPLES, BATCH, EPOCHS = 23, 4, 3


def draw(samples):
    """Collate with a draw from each stream for each sample and one for the batch."""
    import numpy
    import torch

    noise = [[torch.rand(()).item(), random.random(), numpy.random.random()] for _ in [0, *samples]]
    return torch.tensor([index for index, _ in samples]), torch.tensor(noise)


def start_worker(_number):
    import torch

    random.seed()
    torch.seed()


def build(kind):
    """Return a fresh loader of the named kind, as a new process would build it."""
    import torch
    from torch.utils import data

    class Numbers(data.Dataset):
        def __len__(self):
            return SAMPLES

        def __getitem__(self, index):
            return index, torch.rand(()) if kind == "augmented" else torch.zeros(())

    class Lazy(data.Sampler):
        """Draws from the global stream whenever it is asked for an index."""

        def __iter__(self):
            left = list(range(SAMPLES))
            while left:
                yield left.pop(random.randrange(len(left)))

        def __len__(self):
            return SAMPLES

    class ByEpoch(data.Sampler):
        epoch = 0

        def set_epoch(self, epoch):
            self.epoch = epoch

        def __iter__(self):
            return iter(torch.randperm(SAMPLES, generator=seeded(self.epoch)).tolist())

        def __len__(self):
            return SAMPLES

    def seeded(seed=5):
        return torch.Generator().manual_seed(seed)

    numbers = Numbers()
    settings = {
        "plain": {},
        "shuffle": {"shuffle": True},
        "augmented": {"shuffle": True},
        "generator": {"shuffle": True, "generator": seeded()},
        "drop_last": {"shuffle": True, "drop_last": True},
        "replacement": {"sampler": data.RandomSampler(numbers, True, 50, seeded())},
        "weighted": {"sampler": data.WeightedRandomSampler([1.0 + i for i in range(23)], 30)},
        "lazy": {"sampler": Lazy()},
        "set_epoch": {"sampler": ByEpoch()},
        "batch_sampler": {
            "batch_size": 1,
            "batch_sampler": data.BatchSampler(data.RandomSampler(numbers), 5, False),
        },
        "workers": {"shuffle": True, "num_workers": 2},
        "workers_generator": {"shuffle": True, "num_workers": 2, "generator": seeded()},
        "persistent": {"shuffle": True, "num_workers": 2, "persistent_workers": True},
        "workers_draw": {"shuffle": True, "num_workers": 2, "collate_fn": draw},
        "workers_draw_generator": {"num_workers": 3, "collate_fn": draw, "generator": seeded()},
        "workers_draw_init": {
            "num_workers": 2,
            "collate_fn": draw,
            "prefetch_factor": 5,
            "worker_init_fn": start_worker,
        },
        "workers_draw_persistent": {
            "num_workers": 2,
            "collate_fn": draw,
            "persistent_workers": True,
        },
    }[kind]
    return data.DataLoader(numbers, **{"batch_size": BATCH, **settings})


IN_PROCESS = ("plain", "shuffle", "augmented", "generator", "drop_last", "replacement", "weighted",
              "lazy", "set_epoch", "batch_sampler")  # fmt: skip
DRAWING = ("workers_draw", "workers_draw_generator", "workers_draw_init",
           "workers_draw_persistent")  # fmt: skip
KINDS = (*IN_PROCESS, "workers", "workers_generator", "persistent", *DRAWING)


SPAWNED = """
import random
import torch
from torch.utils.data import DataLoader
from flashruntime.torch.loader import resumable

class Numbers:
    def __len__(self):
        return 12

    def __getitem__(self, index):
        return index, torch.rand(()), random.random()

def begin():
    torch.manual_seed(3)
    options = {"num_workers": 1, "multiprocessing_context": "spawn"}
    return resumable(DataLoader(Numbers(), batch_size=2, shuffle=True, **options))

if __name__ == "__main__":
    loader, whole = begin(), []
    for batch in loader:
        whole.append(str(batch))
        if len(whole) == 3:
            state, streams = loader.flash_position.state_dict(), loader.flash_order.capture()
    resumed = begin()
    resumed.flash_position.load_state_dict(state, streams)
    resumed.flash_order.restore(streams)
    print(len(whole), whole[3:] == [str(batch) for batch in resumed])
"""


class Run:
    """A training loop over a loader that draws from the global streams in every step."""

    def __init__(self, kind, state=None, draws_before=0):
        import torch

        from flashruntime.torch.loader import resumable

        torch.manual_seed(1)
        random.seed(1)
        self.loader = resumable(build(kind))
        for _ in range(draws_before):
            torch.rand(3)
            random.random()
        if state:
            position, streams = state
            self.loader.flash_position.load_state_dict(position, streams)
            self.loader.flash_order.restore(streams)

    def capture(self):
        """Return what a checkpoint would keep."""
        loader = self.loader
        return loader.flash_position.state_dict(), loader.flash_order.capture()

    def train(self, stop_after=None):
        """Return what was seen, and the state after `stop_after` batches."""
        import torch

        seen = []
        while self.loader.epoch < EPOCHS:
            epoch = self.loader.epoch
            for ids, values in self.loader:
                noise = (torch.rand(()).item(), random.random())
                seen.append((epoch, ids.tolist(), values.tolist(), noise))
                self.loader.flash_position.touch()
                if len(seen) == stop_after:
                    return seen, self.capture()
        return seen, self.capture()


@pytest.mark.parametrize("kind", KINDS)
def test_a_resume_after_any_batch_gives_the_rest_of_the_run(kind):
    whole, _ = Run(kind).train()
    stops = range(1, len(whole) + 1) if kind in IN_PROCESS else (1, 9)
    for stop in stops:
        seen, state = Run(kind).train(stop)
        rest, _ = Run(kind, state, draws_before=stop).train()
        assert seen + rest == whole, f"resumed after batch {stop}"


@pytest.mark.parametrize(
    "kind", [kind for kind in KINDS if kind not in {"lazy", "set_epoch", *DRAWING}]
)
def test_the_order_is_that_of_the_loader_without_us(kind):
    import torch

    def order(loader):
        torch.manual_seed(1)
        random.seed(1)
        return [ids.tolist() for _ in range(2) for ids, _ in loader]

    from flashruntime.torch.loader import resumable

    assert order(resumable(build(kind))) == order(build(kind))


@pytest.mark.parametrize("kind", DRAWING)
def test_workers_draw_anew_for_each_batch_of_each_epoch_and_leave_our_streams_alone(kind):
    whole, (_, streams) = Run(kind).train()
    draws = [draw for _, _, values, _ in whole for sample in values for draw in sample]
    assert len(set(draws)) == len(draws)
    _, (_, undrawn) = Run("workers_generator" if "gen" in kind else "workers").train()
    assert streams["python"] == undrawn["python"]


def test_workers_that_are_spawned_draw_alike(tmp_path):
    """A fresh interpreter in each worker: what goes there is picklable and importable."""
    script = tmp_path / "train.py"
    script.write_text(SPAWNED)
    command = [sys.executable, script]
    shown = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert shown == "6 True\n"


def test_every_sample_comes_once_an_epoch():
    whole, _ = Run("shuffle").train()
    for epoch in range(EPOCHS):
        ids = [i for e, batch, _, _ in whole if e == epoch for i in batch]
        assert sorted(ids) == list(range(SAMPLES))


def test_settings_and_length_are_those_of_the_users_loader():
    from flashruntime.torch.loader import resumable

    original = build("drop_last")
    wrapped = resumable(original)
    for name in ("dataset", "batch_size", "drop_last", "sampler", "collate_fn", "num_workers"):
        assert getattr(wrapped, name) is getattr(original, name)
    assert len(wrapped) == len(original) == SAMPLES // BATCH
    assert isinstance(wrapped, type(original))


def test_a_look_at_one_batch_before_training_costs_nothing():
    seen, state = Run("shuffle").train(8)
    resumed = Run("shuffle", state)
    next(iter(resumed.loader))
    rest, _ = resumed.train()
    assert seen + rest == Run("shuffle").train()[0]


def test_a_pass_that_is_left_early_is_followed_by_the_next_epoch_in_both_runs():
    def epochs(run, until):
        """Three batches of each epoch, a checkpoint after every pass."""
        seen = []
        while run.loader.epoch < until:
            for number, (ids, _) in enumerate(run.loader):
                seen.append(ids.tolist())
                if number == 2:
                    break
            run.loader.flash_position.touch()
        return seen

    whole = epochs(Run("shuffle"), 3)
    first = Run("shuffle")
    seen = epochs(first, 1)
    rest = epochs(Run("shuffle", first.capture()), 3)
    assert seen + rest == whole


def test_a_data_set_of_another_size_is_refused_in_mid_epoch():
    from flashruntime.errors import CheckpointError

    _, (position, streams) = Run("shuffle").train(2)
    with pytest.raises(CheckpointError, match="over 22 samples in batches of 4, now there are 23"):
        Run("shuffle", ({**position, "size": 22}, streams))


def test_loaders_that_cannot_be_resumed_exactly_are_refused_clearly():
    from torch.utils import data

    from flashruntime.errors import InvalidInput
    from flashruntime.torch.loader import resumable

    class Stream(data.IterableDataset):
        def __iter__(self):
            return iter(range(3))

    with pytest.raises(InvalidInput, match="IterableDataset"):
        resumable(data.DataLoader(Stream()))
    with pytest.raises(InvalidInput, match="batch_size=None"):
        resumable(data.DataLoader([1, 2, 3], batch_size=None))
    with pytest.raises(InvalidInput, match="in_order=False"):
        resumable(data.DataLoader([1, 2, 3], num_workers=1, in_order=False))
