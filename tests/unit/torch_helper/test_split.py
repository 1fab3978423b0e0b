"""One loader over several ranks: each sample for exactly one of them, every setting kept."""

import random
from collections import Counter

import pytest

pytestmark = pytest.mark.torch


def loader(samples=24, **settings):
    from torch.utils import data

    return data.DataLoader(list(range(samples)), **{"batch_size": 4, **settings})


def parts(build, size, epoch=0, seed=7):
    """Return what each rank sees in an epoch, though its own streams are its own."""
    import torch

    from flashruntime.torch.split import split

    seen = []
    for rank in range(size):
        torch.manual_seed(rank)
        random.seed(rank)
        part, order = split(build(), rank, size)
        order.seed = seed
        order.set_epoch(epoch)
        seen.append([batch.tolist() for batch in part])
        assert len(seen[-1]) == len(part)
    return seen


def samples_of(seen):
    return [sample for part in seen for batch in part for sample in batch]


def seeded():
    import torch

    return torch.Generator().manual_seed(5)


def kinds():
    from torch.utils import data

    class Lazy(data.Sampler):
        def __iter__(self):
            left = list(range(24))
            while left:
                yield left.pop(random.randrange(len(left)))

        def __len__(self):
            return 24

    class Pairs:
        """Batches of its own making."""

        def __iter__(self):
            order = random.sample(range(12), 12)
            return iter([[2 * each, 2 * each + 1] for each in order])

        def __len__(self):
            return 12

    numbers = list(range(24))
    own_batches = {"batch_size": 1, "batch_sampler": Pairs()}
    return {
        "plain": {},
        "shuffle": {"shuffle": True},
        "generator": {"shuffle": True, "generator": seeded()},
        "lazy": {"sampler": Lazy()},
        "subset": {"sampler": data.SubsetRandomSampler(numbers, generator=seeded())},
        "batches": own_batches,
        "batch_sampler": {
            "batch_size": 1,
            "batch_sampler": data.BatchSampler(data.RandomSampler(numbers), 3, False),
        },
    }


NAMES = ("plain", "shuffle", "generator", "lazy", "subset", "batches", "batch_sampler")


@pytest.mark.parametrize("size", [2, 3, 4])
@pytest.mark.parametrize("kind", NAMES)
def test_every_sample_belongs_to_exactly_one_rank_in_each_epoch(kind, size):
    for epoch in range(2):
        seen = parts(lambda: loader(**kinds()[kind]), size, epoch)
        assert sorted(samples_of(seen)) == list(range(24))
        assert len({len(part) for part in seen}) == 1


@pytest.mark.parametrize("kind", NAMES[1:])
def test_an_order_that_is_shuffled_differs_from_epoch_to_epoch_and_from_seed_to_seed(kind):
    def build():
        return loader(**kinds()[kind])

    orders = [parts(build, 2), parts(build, 2, epoch=1), parts(build, 2, seed=70)]
    assert orders[0] == parts(build, 2)
    assert orders[0] != orders[1] != orders[2] != orders[0]


def test_a_plain_order_stays_plain():
    assert parts(loader, 2)[1][0] == [1, 3, 5, 7]


@pytest.mark.parametrize("settings", [{}, {"shuffle": True}, {"sampler": [*range(23)]}])
def test_what_does_not_divide_is_repeated_or_with_drop_last_left_out(settings):
    padded = parts(lambda: loader(23, **settings), 4)
    counts = Counter(samples_of(padded))
    assert (sorted(counts), sum(counts.values()), max(counts.values())) == ([*range(23)], 24, 2)
    dropped = parts(lambda: loader(23, drop_last=True, **settings), 4)
    assert max(Counter(samples_of(dropped)).values()) == 1
    assert [len(part) for part in dropped] == [1, 1, 1, 1]
    assert all(len(batch) == 4 for part in dropped for batch in part)


def test_fewer_samples_than_ranks_still_give_each_rank_as_many():
    assert [len(part[0]) for part in parts(lambda: loader(2, sampler=[0, 1]), 5)] == [1] * 5


def test_the_streams_of_the_process_are_untouched():
    import numpy
    import torch

    from flashruntime.torch.split import split

    part, _ = split(loader(**kinds()["lazy"]), 0, 2)
    random.seed(3)
    torch.manual_seed(3)
    numpy.random.seed(3)
    expected = (random.random(), torch.rand(1), numpy.random.rand())
    random.seed(3)
    torch.manual_seed(3)
    numpy.random.seed(3)
    list(part.sampler)
    assert (random.random(), torch.rand(1), numpy.random.rand()) == expected


def test_all_other_settings_are_those_of_the_users_loader():
    from torch.utils import data

    from flashruntime.torch.split import split

    class Mine(data.DataLoader):
        pass

    original = Mine([*range(9)], batch_size=2, shuffle=True, collate_fn=tuple, timeout=0)
    part, _ = split(original, 1, 2)
    for name in ("dataset", "batch_size", "drop_last", "collate_fn", "num_workers", "generator"):
        assert getattr(part, name) is getattr(original, name)
    assert type(part) is Mine
    assert isinstance(part.sampler, data.DistributedSampler)
    assert isinstance(original.sampler, data.RandomSampler)


def test_a_loader_that_knows_of_ranks_keeps_its_sampler():
    from torch.utils import data

    from flashruntime.torch.split import split

    sampler = data.DistributedSampler([*range(9)], 3, 2, seed=11)
    own = data.DataLoader([*range(9)], sampler=sampler)
    assert split(own, 0, 2) == (own, None)
    batches = data.BatchSampler(sampler, 2, drop_last=False)
    nested = data.DataLoader([*range(9)], batch_sampler=batches)
    assert split(nested, 0, 2) == (nested, None)


def test_a_sampler_without_a_length_is_refused():
    from flashruntime.errors import InvalidInput
    from flashruntime.torch.split import split

    class Endless:
        def __iter__(self):
            return iter(range(3))

    with pytest.raises(InvalidInput, match="Endless without __len__ cannot be split over 2 ranks"):
        split(loader(sampler=Endless()), 0, 2)


def test_the_order_derives_from_the_users_seed():
    import torch

    from flashruntime.torch.split import split

    torch.manual_seed(42)
    assert split(loader(shuffle=True), 0, 2)[1].seed == 42
    assert split(loader(shuffle=True, generator=seeded()), 0, 2)[1].seed == 5
