"""The callback and the choice of a checkpoint in the real transformers.Trainer; a tiny model."""

from pathlib import Path

import pytest

import flashruntime as flash
from flashruntime.integrations import huggingface

pytestmark = pytest.mark.torch

SCRIPT = """
import hashlib, os, signal, sys
import torch
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainerCallback, TrainingArguments
import flashruntime.torch as ft
from flashruntime.integrations.huggingface import flashruntime_callback, latest_checkpoint

mode, first = sys.argv[1], os.environ["FLASHML_RESTART_COUNT"] == "0"

last = int(os.environ.get("RANK", "0")) == int(os.environ.get("WORLD_SIZE", "1")) - 1

class Noticed(TrainerCallback):
    def on_step_begin(self, args, state, control, **_):
        if first and mode == "notice" and state.global_step == 7 and last:
            os.kill(os.getpid(), signal.SIGTERM)

class Killed(Trainer):
    def _save_optimizer_and_scheduler(self, output_dir):
        if first and mode == "kill" and output_dir.endswith("checkpoint-10"):
            os.kill(os.getpid(), signal.SIGKILL)
        super()._save_optimizer_and_scheduler(output_dir)

torch.manual_seed(0)
torch.set_num_threads(1)
tokens = torch.randint(0, 64, (24, 16))
shape = {"vocab_size": 64, "n_positions": 16, "n_embd": 32, "n_layer": 2, "n_head": 2}
model = GPT2LMHeadModel(GPT2Config(**shape, bos_token_id=0, eos_token_id=0))
args = TrainingArguments(
    os.environ["FLASHML_CKPT_DIR"], max_steps=15, save_steps=5, logging_steps=5, report_to=[],
    per_device_train_batch_size=4, learning_rate=1e-2, warmup_steps=3, disable_tqdm=True,
    use_cpu=True, ddp_backend="gloo" if "RANK" in os.environ else None,
)
trainer = Killed(
    model, args, train_dataset=[{"input_ids": row, "labels": row} for row in tokens],
    callbacks=[Noticed(), flashruntime_callback()],
)
trainer.train(resume_from_checkpoint=latest_checkpoint(args.output_dir))
digest = hashlib.sha256()
for name, tensor in sorted(model.state_dict().items()):
    digest.update(name.encode() + tensor.numpy().tobytes())
print("weights", digest.hexdigest())
"""


@pytest.fixture(scope="module")
def train(tmp_path_factory):
    """Run the script in a mode, with one restart; return the run and the final weights' digest."""

    def run(mode: str, ranks: int = 1) -> tuple[flash.Run, str]:
        root: Path = tmp_path_factory.mktemp(mode)
        source = root / "source"
        source.mkdir()
        (source / "train.py").write_text(SCRIPT)
        work = huggingface.trainer(
            "train.py", source, mode, ranks, metric="train_loss", maximize=False
        )
        done = flash.submit(work, root / "out", max_restarts=1, watch=False)
        assert done.state is flash.RunState.SUCCEEDED, done.logs()
        line = next(line for line in done.logs().splitlines() if "weights " in line)
        return done, line

    return run


@pytest.fixture(scope="module")
def whole(train):
    """The run that nothing disturbs."""
    return train("undisturbed")


def test_metrics_of_an_undisturbed_run_are_its_trial(whole):
    done, _ = whole
    assert (len(done.attempts), done.trials[0]["step"]) == (1, 15)
    assert done.trials[0]["epoch"] == 2.5
    assert done.best_trial()["train_loss"] > 0
    assert done.attempts[0].step == 15


def test_a_kill_in_the_middle_of_a_save_resumes_from_the_one_before_bit_for_bit(train, whole):
    done, weights = train("kill")
    killed, resumed = done.attempts
    tree = done.output_dir / "local" / "ckpt"
    assert (killed.step, resumed.resumed_from) == (10, 5)
    assert weights == whole[1]
    assert huggingface.latest_checkpoint(tree) == str(tree / "checkpoint-15")
    assert done.trials[0]["step"] == 15


def test_a_notice_saves_the_step_and_exits_with_143_and_the_rest_is_the_same(train, whole):
    done, weights = train("notice")
    noticed, resumed = done.attempts
    assert noticed.exit_code == 143
    assert (noticed.step, resumed.resumed_from) == (8, 8)
    assert weights == whole[1]


@pytest.mark.bench_stress
def test_notice_to_one_rank_alone_lets_all_save_and_stop_at_the_same_step(train):
    done, _ = train("notice", 2)
    noticed, resumed = done.attempts
    log = (done.output_dir / "local" / "task-000" / "launcher.log").read_text()
    assert "exitcode  : 143" in log
    assert (noticed.step, resumed.resumed_from) == (8, 8)
    assert done.trials[0]["step"] == 15
