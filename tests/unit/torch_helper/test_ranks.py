"""The processes that train together: how they meet, agree, learn of an error, and part."""

import json
import os
import signal
import sys
import threading
import time

import pytest

pytestmark = pytest.mark.torch


def met():
    from flashruntime.torch.ranks import Ranks

    return Ranks.meet()


def told(**fields):
    sys.stdout.write(json.dumps(fields) + "\n")


@pytest.mark.parametrize("size", [2, 4])
def test_ranks_meet_exchange_and_part_without_a_word(group, size):
    def action():
        from torch import distributed

        import flashruntime.torch as ft

        before = (ft.rank(), ft.world_size())
        ranks = met()
        assert before == (ranks.rank, ranks.size) == (ft.rank(), ft.world_size())
        assert (ft.is_main(), ft.backend(), distributed.get_backend()) == (
            ranks.rank == 0, "gloo", "gloo",
        )  # fmt: skip
        assert ranks.highest([ranks.rank, -ranks.rank]) == [size - 1, 0]
        words = [b"x" * (3 * rank) for rank in range(size)]
        assert ranks.share(words[ranks.rank]) == words
        collected = ranks.collect(words[ranks.rank], 100)
        assert [bytes(each) for each in collected] == (words if ranks.is_main else [])
        assert ranks.tell({"step": ranks.rank}) == {"step": 0}

    for ended in group(action, size):
        assert (ended.exit_code, ended.output) == (0, "")


def test_a_process_group_of_the_scripts_own_is_used_and_left_to_it(group):
    def action():
        from torch import distributed

        os.environ |= {"USE_LIBUV": "0", "GLOO_SOCKET_IFNAME": "lo"}
        distributed.init_process_group("gloo")
        ranks = met()
        assert ranks.highest([ranks.rank]) == [1]
        distributed.destroy_process_group()

    assert [(ended.exit_code, ended.output) for ended in group(action)] == [(0, ""), (0, "")]


def test_c9_an_error_on_one_rank_is_raised_on_all_at_once_under_its_own_words(group):
    def action():
        from flashruntime.errors import CheckpointError, Superseded

        ranks = met()
        assert ranks.together(lambda: ranks.rank) == ranks.rank

        def fail():
            if ranks.rank == 1:
                raise ValueError("no room")

        began_s = time.monotonic()
        with pytest.raises(CheckpointError, match=r"^ValueError: no room \[on rank 1 of 2\]$"):
            ranks.together(fail)

        def superseded():
            if ranks.rank == 0:
                raise Superseded("attempt a was superseded")

        with pytest.raises(Superseded, match=r"^attempt a was superseded \[on rank 0 of 2\]$"):
            ranks.together(superseded)
        assert ranks.highest([ranks.rank]) == [1]
        told(took_s=time.monotonic() - began_s)

    for ended in group(action):
        assert ended.exit_code == 0, ended.output
        assert ended.lines[0]["took_s"] < 5


@pytest.mark.parametrize("number", [signal.SIGKILL, None])
def test_a_rank_that_is_gone_frees_the_others_at_once(group, number):
    """Whether it was killed, or left with an exception of its own."""

    def action():
        ranks = met()
        told(ready=ranks.rank)
        if ranks.rank == 1:
            if number is None:
                raise KeyError("a bug of the script")
            time.sleep(60)
        began_s = time.monotonic()
        try:
            ranks.highest([1])
        finally:
            told(waited_s=time.monotonic() - began_s)

    ready = set()

    def both(rank, line):
        ready.add(rank)
        return number if len(ready) == 2 else None

    left, gone = group(action, on_line=both if number else lambda *_: None, target=1)
    assert gone.exit_code == (-signal.SIGKILL if number else 1)
    assert left.exit_code == 1
    assert left.lines[-1]["waited_s"] < 20
    assert "RuntimeError" in left.output


def test_a_rank_that_waits_long_says_for_what(group):
    def action():
        import logging

        from flashruntime.torch import ranks as module

        logging.basicConfig(force=True)
        module.PATIENCE_S = 0.2
        ranks = met()
        if ranks.rank == 1:
            threading.Event().wait(1)
        ranks.highest([1])

    waiting, late = group(action)
    assert (waiting.exit_code, late.exit_code, late.output) == (0, 0, "")
    assert "rank 0 of 2 has waited 0.2 s for the other ranks" in waiting.output
    assert "must be called on every rank, for the same steps" in waiting.output


def test_a_collective_that_nobody_joins_does_not_hold_up_the_exit(group):
    def action():
        import torch
        from torch import distributed

        from flashruntime.torch import ranks as module

        module.LEAVE_S = 1
        if met().rank == 1:
            distributed.all_reduce(torch.ones(1), async_op=True)
            raise KeyError("in the middle of it")
        threading.Event().wait(2)

    began_s = time.monotonic()
    waiting, left = group(action)
    assert (waiting.exit_code, left.exit_code) == (0, 1)
    assert time.monotonic() - began_s < 20


@pytest.mark.parametrize("wrapped", [False, True])
def test_gradients_of_the_first_step_are_those_of_any_later_one(group, wrapped):
    """Else the first step after a resume would differ from that of the undisturbed run."""

    def action():
        import torch
        from torch.nn.parallel import DistributedDataParallel

        from flashruntime.torch.replicas import replicate

        ranks = met()
        torch.manual_seed(0)
        layers = [torch.nn.Linear(200, 200, bias=number % 2 == 0) for number in range(10)]
        model = torch.nn.Sequential(*layers)
        model = replicate(DistributedDataParallel(model) if wrapped else model)
        inputs = torch.rand(4, 200, generator=torch.Generator().manual_seed(ranks.rank))
        seen = []
        for _ in range(3):
            model.zero_grad()
            model(inputs).pow(2).sum().backward()
            seen.append([each.grad.clone() for each in model.parameters()])
        for later in seen[1:]:
            assert all(map(torch.equal, seen[0], later))

    for ended in group(action, 4):
        assert (ended.exit_code, ended.output) == (0, "")


@pytest.mark.parametrize(
    ("env", "wrong"),
    [
        ({"WORLD_SIZE": "two"}, "WORLD_SIZE must be a number from 1"),
        ({"WORLD_SIZE": "2"}, "RANK must be a number from 0 to 1, not ''"),
        ({"WORLD_SIZE": "2", "RANK": "2"}, "RANK must be a number from 0 to 1, not '2'"),
    ],
)
def test_a_launch_that_makes_no_sense_is_refused_by_name(env, wrong):
    from flashruntime.errors import ConfigError
    from flashruntime.torch.ranks import Place

    with pytest.raises(ConfigError, match=wrong):
        Place.from_env(env)


def test_one_rank_alone_needs_no_process_group():
    from flashruntime.torch.ranks import Place

    assert Place.from_env({}) == Place.from_env({"WORLD_SIZE": "1", "RANK": "0"}) == Place()


def test_agreements_are_rare_where_steps_are_short_and_never_far_apart():
    from flashruntime.torch.pace import MAX_CALLS, Pace

    pace = Pace()
    assert pace.due()
    for slowest_us, calls in ((100, MAX_CALLS), (50_000, 5), (2_000_000, 1)):
        pace.agreed(slowest_us)
        assert [pace.due() for _ in range(calls)] == [False] * (calls - 1) + [True]
