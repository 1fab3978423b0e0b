"""Several ranks save and resume as one: bit for bit, each sample once, whoever is killed."""

import hashlib
import json
import random
import signal
import sys
from collections import Counter
from pathlib import Path

import pytest

pytestmark = pytest.mark.torch

SAMPLES, BATCH, STEPS = 48, 4, 20


def told(**fields):
    sys.stdout.write(json.dumps(fields) + "\n")


class Ledger:
    """Which samples this rank saw, by epoch; part of the checkpoint, a rank each."""

    def __init__(self):
        self.seen = []

    def state_dict(self):
        return {"seen": self.seen}

    def load_state_dict(self, state):
        self.seen = state["seen"]


def network():
    import torch
    from torch import nn

    torch.manual_seed(3)
    layers = [nn.Linear(1, 24), nn.ReLU(), nn.Dropout(0.3), nn.Linear(24, 24), nn.BatchNorm1d(24)]
    return nn.Sequential(*layers, nn.Linear(24, 1))


def training(steps=STEPS, every=1, own=False, loader_settings=None):
    """Return the script of a rank: it tells each step, and at the end what it came to.

    `own`: it makes process group, wrapper and sampler by itself, to the same effect.
    """

    def script():
        import os

        import torch
        from torch import distributed
        from torch.utils.data import DataLoader, DistributedSampler

        import flashruntime.torch as ft

        torch.use_deterministic_algorithms(True)
        data, model = list(range(SAMPLES)), network()
        settings = {"batch_size": BATCH, "shuffle": True, **(loader_settings or {})}
        if own:
            os.environ |= {"USE_LIBUV": "0", "GLOO_SOCKET_IFNAME": "lo"}
            distributed.init_process_group("gloo")
            model = torch.nn.parallel.DistributedDataParallel(model)
            settings = {"batch_size": BATCH, "sampler": DistributedSampler(data, seed=100)}
        torch.manual_seed(100 + ft.rank())
        random.seed(100 + ft.rank())
        optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
        loader = DataLoader(data, **settings)
        ledger = Ledger()
        model, optimizer, loader = ft.prepare(model, optimizer, loader, ledger=ledger)
        step = start = ft.start_step()
        while step < steps:
            for ids in loader:
                optimizer.zero_grad()
                model(ids.float().unsqueeze(1) / SAMPLES).pow(2).mean().backward()
                optimizer.step()
                step += 1
                ledger.seen.append([loader.epoch, *ids.tolist()])
                told(seq=step, rank=ft.rank())
                ft.checkpoint(model, optimizer, step=step, every=every, ledger=ledger)
                if step >= steps:
                    break
        ft.log_metrics({"rank": ft.rank(), "steps": step})
        weights, buffers = digest(model.parameters()), digest(model.buffers())
        draws = [torch.rand(()).item(), random.random()]
        told(weights=weights, buffers=buffers, seen=ledger.seen, draws=draws, start=start)
        if own:
            distributed.destroy_process_group()

    return script


def end_of(ended):
    """Return what a rank told at its end."""
    return next(line for line in ended.lines if "weights" in line)


def results(ended):
    """Return what each rank came to, but for where it started."""
    for each in ended:
        assert each.exit_code == 0, each.output
    last = [end_of(each) for each in ended]
    assert len({each["weights"] for each in last}) == 1
    return [{**each, "start": None} for each in last]


def digest(tensors):
    return hashlib.sha256(b"".join(each.detach().numpy().tobytes() for each in tensors)).hexdigest()


def at_step(step, number=signal.SIGKILL, of_rank=0):
    return lambda rank, line: number if rank == of_rank and f'"seq": {step},' in line else None


@pytest.fixture(scope="module")
def whole():
    """What undisturbed runs came to, by number of ranks."""
    return {}


@pytest.fixture
def undisturbed(group, tmp_path, whole):
    def run(size):
        if size not in whole:
            whole[size] = results(group(training(every=0), size, tmp_path / "whole"))
        return whole[size]

    return run


@pytest.mark.parametrize(
    "case",
    [
        (2, None, 1),
        (2, 1, 1),
        (4, 2, 1),
        *(
            pytest.param(case, marks=pytest.mark.bench_stress)
            for case in ((2, None, 10), (4, None, 10), (4, 0, 10))
        ),
    ],
    ids=str,
)
def test_kills_of_one_rank_or_all_change_nothing(group, tmp_path, undisturbed, case):
    size, target, kills = case
    chance = random.Random(size)
    every, folder = chance.choice([1, 3]), tmp_path / "killed"
    for step in sorted(chance.sample(range(4, STEPS), kills)):
        ended = group(training(every=every), size, folder, on_line=at_step(step), target=target)
        for rank, each in enumerate(ended):
            killed = target is None or rank == target
            assert each.exit_code == (-signal.SIGKILL if killed else 1), each.output
    final = group(training(every=every), size, folder)
    assert results(final) == undisturbed(size)
    assert {end_of(each)["start"] for each in final} != {0}
    assert [len(each.events("resumed")) for each in final] == [1] + [0] * (size - 1)


def test_each_sample_is_seen_once_an_epoch_by_one_rank_in_an_order_of_its_own(undisturbed):
    """C4, C5: set_epoch is called, shuffle kept; streams and samples of the ranks differ."""
    ranks = undisturbed(2)
    epochs = []
    for epoch in range(3):
        ids = [i for rank in ranks for e, *batch in rank["seen"] if e == epoch for i in batch]
        assert max(Counter(ids).values()) == 1
        assert epoch == 3 or len(ids) == SAMPLES
        epochs.append(ids)
    assert epochs[0] != epochs[1] != epochs[2]
    assert ranks[0]["draws"] != ranks[1]["draws"]


def test_a_script_with_group_wrapper_and_sampler_of_its_own_keeps_them(
    group, tmp_path, undisturbed
):
    script = training(own=True)
    group(script, 2, tmp_path / "own", on_line=at_step(7))
    assert results(group(script, 2, tmp_path / "own")) == undisturbed(2)


def test_the_manifest_counts_the_ranks_and_only_rank_0_writes(group, tmp_path):
    ended = group(training(4, every=2))
    assert [len(each.events("checkpoint_committed")) for each in ended] == [2, 0]
    manifest = json.loads((tmp_path / "flashruntime-ckpt/step-000004/manifest.json").read_text())
    assert (manifest["world_size"], manifest["compatible_world_sizes"]) == (2, [2])
    assert "rank-00001.index.pt" in {part["key"] for part in manifest["parts"]}
    assert json.loads((tmp_path / "metrics.json").read_text()) == {"rank": 0, "steps": 4}
    assert len(list((tmp_path / "flashruntime-ckpt" / ".lineage").iterdir())) == 1


def test_c10_another_number_of_ranks_is_refused_with_both_numbers(group):
    group(training(3), 2)
    for size in (1, 3):
        for each in group(training(4), size):
            assert each.exit_code == 1
            assert f"WORLD_SIZE was 2 and now is {size}" in each.output
            assert "launch 2 ranks again" in each.output


def test_c10_what_one_rank_cannot_read_is_passed_over_by_all(group, tmp_path):
    group(training(3))
    good = training(6)

    def corrupt_for_rank_1():
        import flashruntime.torch as ft
        from flashruntime.checkpoint import files

        honest = files.read_file

        def read_file(folder, name, size_bytes):
            data, sha256 = honest(folder, name, size_bytes)
            if not name.endswith(".json"):
                sha256 = "0" * 64
            return data, sha256

        def on_newest(root, step, admits):
            files.read_file = read_file if step == 3 else honest
            return load(root, step, admits)

        from flashruntime.checkpoint import store

        load = store.load
        if ft.rank() == 1:
            store.load = on_newest
        good()

    first, second = group(corrupt_for_rank_1)
    assert (first.exit_code, second.exit_code) == (0, 0), first.output + second.output
    (aside,) = first.events("checkpoint_set_aside")
    assert aside["step"] == 3
    assert "does not hash to the sha256 in the manifest [on rank 1 of 2]" in aside["reason"]
    assert (end_of(first)["start"], end_of(second)["start"]) == (2, 2)
    assert end_of(first)["weights"] == end_of(second)["weights"]


def test_c10_a_rank_that_sees_another_tree_is_told_so_and_nothing_is_lost(group, tmp_path):
    group(training(3))
    script = training(4)

    def elsewhere():
        import os

        import flashruntime.torch as ft

        if ft.rank() == 1:
            os.environ["FLASHML_CKPT_DIR"] = str(tmp_path / "elsewhere")
        script()

    for each in group(elsewhere):
        assert each.exit_code == 1
        assert "is not the checkpoint tree that rank 0 uses" in each.output
        assert "[on rank 1 of 2]" in each.output
    tree = tmp_path / "flashruntime-ckpt"
    assert len(list(tree.glob("step-*"))) == 3
    assert not (tree / ".rejected").exists()


def failing(break_rank, steps=12):
    """Return a script whose rank breaks after step 3; all tell which step they came to."""
    script = training(steps)

    def run():
        import flashruntime.torch as ft
        from flashruntime.torch.session import Session

        honest = Session.checkpoint

        def checkpoint(self, model, optimizer, stateful, *when):
            if when[0] == 4 and ft.rank() == break_rank[0]:
                break_rank[1](self, stateful)
            honest(self, model, optimizer, stateful, *when)

        Session.checkpoint = checkpoint
        script()

    return run


def no_room(session, _stateful):
    from flashruntime.checkpoint import files

    def write(*_):
        raise OSError(28, "No space left on device")

    files.write_all = write


def no_state(_session, stateful):
    def state_dict():
        raise KeyError("momentum")

    stateful["ledger"].state_dict = state_dict


def no_finite_weight(_session, _stateful):
    """Rank 0 finds it when it makes the parts, behind the training."""
    import torch

    honest = torch.optim.Adam.step

    def step(self, *_):
        honest(self)
        with torch.no_grad():
            self.param_groups[0]["params"][0].fill_(float("nan"))

    torch.optim.Adam.step = step


def no_number(_session, stateful):
    stateful["ledger"].seen = [object()]


@pytest.mark.parametrize(
    ("broken", "words", "latest"),
    [
        ((0, no_room), "could not be written to .*No space left on device", 5),
        ((1, no_state), "KeyError: 'momentum'", 4),
        ((0, no_finite_weight), "parameter .* is NaN", 6),
        ((1, no_number), "holds a object, which a checkpoint cannot", 4),
    ],
)
def test_c9_an_error_on_one_rank_ends_all_at_once_and_names_it(group, broken, words, latest):
    import re

    for each in group(failing(broken)):
        assert each.exit_code == 1
        assert each.lines[-1]["seq"] <= latest
        last = each.output.splitlines()[-1]
        assert re.search(
            rf"(CheckpointError|NotFinite): .*{words}.*\[on rank {broken[0]} of 2\]$", last
        )


def test_c9_a_successor_stops_all_ranks(group, tmp_path):
    from flashruntime.checkpoint import Chain, Claim

    def supersede(rank, line):
        if rank == 0 and '"seq": 5,' in line:
            Chain.begin(tmp_path / "flashruntime-ckpt", Claim("successor", "local"))

    for each in group(training(5000), on_line=supersede):
        assert each.exit_code == 1
        assert "Superseded: attempt " in each.output.splitlines()[-1]
        assert "[on rank 0 of 2]" in each.output


@pytest.mark.parametrize("every", [10_000, 1])
def test_notice_on_one_rank_stops_all_at_one_saved_step(group, tmp_path, undisturbed, every):
    script = training(3000, every=every)
    notice = at_step(7, signal.SIGTERM, of_rank=1)
    ended = group(script, 2, tmp_path, on_line=notice, target=1)
    assert [each.exit_code for each in ended] == [143, 143], ended[0].output + ended[1].output
    (stopped,) = ended[0].events("stopped_on_notice")
    assert {each.lines[-1].get("seq") for each in ended[1:]} == {stopped["step"]}
    newest = max((tmp_path / "flashruntime-ckpt").glob("step-*"))
    assert int(newest.name[5:]) == stopped["step"] >= 7


def test_every_auto_saves_where_rank_0_says(group, tmp_path):
    ended = group(training(12, every="auto"))
    results(ended)
    assert [len(each.events("checkpoint_committed")) > 0 for each in ended] == [True, False]
    again = group(training(12, every="auto"))
    assert len({end_of(each)["start"] for each in again}) == 1
    assert results(again) == results(ended)


def test_different_steps_on_the_ranks_are_an_error_not_a_hang(group):
    def script():
        import flashruntime.torch as ft

        model, _, _ = ft.prepare(network())
        ft.checkpoint(model, step=1 + ft.rank())

    for each in group(script):
        assert "the ranks came to checkpoint with different steps, 1 to 2" in each.output


def test_drop_last_leaves_out_what_does_not_divide(group):
    settings = {"batch_size": 5, "drop_last": True}
    ended = group(training(8, loader_settings=settings))
    for rank in results(ended):
        assert [len(batch) for _, *batch in rank["seen"]] == [5] * 8
        assert [epoch for epoch, *_ in rank["seen"]] == [0] * 4 + [1] * 4


def test_a_stream_of_data_is_refused_clearly(group):
    def script():
        from torch.utils.data import DataLoader, IterableDataset

        import flashruntime.torch as ft

        class Stream(IterableDataset):
            def __iter__(self):
                return iter(range(4))

        ft.prepare(network(), None, DataLoader(Stream(), batch_size=2))

    for each in group(script):
        assert "InvalidInput: dataloader: an IterableDataset cannot be resumed" in each.output


def test_buffers_that_each_rank_keeps_for_itself_come_back_to_it(group, tmp_path):
    def script():
        import torch

        import flashruntime.torch as ft
        from flashruntime.torch.ranks import Ranks

        Ranks.meet()
        wrapped = torch.nn.parallel.DistributedDataParallel(network(), broadcast_buffers=False)
        model, _, _ = ft.prepare(wrapped)
        assert model is wrapped
        mean = model.module[4].running_mean
        if ft.start_step():
            assert mean[0].item() == ft.rank() + 5
        mean.fill_(ft.rank() + 5)
        ft.checkpoint(model, step=1)

    for _ in range(2):
        for each in group(script, 2, Path(tmp_path)):
            assert each.exit_code == 0, each.output
