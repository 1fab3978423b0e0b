"""A real training job, written as a user would: digits, a small network, exact resume.

metrics.json proves the run: the digest of the final weights, and a hash chain over every sample id
in the order in which the network saw it.
"""

import argparse
import hashlib
import json
import random
import sys
from typing import Any

import torch
from torch import nn
from torch.utils.data import DataLoader

import flashruntime.torch as ft

TEST_SAMPLES = 297


class Digits:
    """Images of handwritten digits; each sample comes with its index."""

    def __init__(self, images: Any, labels: Any) -> None:
        self.images = torch.tensor(images, dtype=torch.float32) / 16
        self.labels = torch.tensor(labels)

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, index: int) -> tuple[torch.Tensor, torch.Tensor, int]:
        return self.images[index], self.labels[index], index


class SampleLedger:
    """Which samples were seen, and in what order, by all ranks; part of the checkpoint."""

    def __init__(self, samples: int) -> None:
        self.chain = hashlib.sha256(b"").hexdigest()
        self.seen = 0
        self.epoch = 0
        self.counts = torch.zeros(samples, dtype=torch.int64)

    def record(self, step: int, epoch: int, ids: torch.Tensor) -> None:
        """Add a batch; a sample that comes twice in one epoch ends the run."""
        ids = _from_all_ranks(ids)
        if epoch != self.epoch:
            if not bool((self.counts == 1).all()):
                raise SystemExit(f"epoch {self.epoch}: some sample was not seen exactly once")
            self.epoch = epoch
            self.counts.zero_()
        self.counts[ids] += 1
        if int(self.counts.max()) > 1:
            raise SystemExit(f"step {step}: sample {int(self.counts.argmax())} was seen twice")
        entry = f"{self.chain} {step} {ids.tolist()}"
        self.chain = hashlib.sha256(entry.encode()).hexdigest()
        self.seen += len(ids)

    def state_dict(self) -> dict[str, Any]:
        """Return the whole ledger."""
        return dict(vars(self))

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Take the ledger over."""
        vars(self).update(state)


def _from_all_ranks(ids: torch.Tensor) -> torch.Tensor:
    if ft.world_size() == 1:
        return ids
    gathered = [torch.empty_like(ids) for _ in range(ft.world_size())]
    torch.distributed.all_gather(gathered, ids)
    return torch.cat(gathered)


def load_data() -> tuple[Digits, Digits]:
    """Return training and test data of the set that scikit-learn ships."""
    try:
        from sklearn.datasets import load_digits  # noqa: PLC0415 (to say clearly what is missing)
    except ImportError as error:
        sys.exit(f"digits.py needs scikit-learn ({error}); install it: pip install scikit-learn")
    images, labels = load_digits(return_X_y=True)
    return (
        Digits(images[:-TEST_SAMPLES], labels[:-TEST_SAMPLES]),
        Digits(images[-TEST_SAMPLES:], labels[-TEST_SAMPLES:]),
    )


def build(width: int) -> nn.Module:
    """Return the network; its width sets the size of a checkpoint (2048: about 50 MB)."""
    return nn.Sequential(
        nn.Linear(64, width),
        nn.ReLU(),
        nn.Dropout(0.2),
        nn.Linear(width, width),
        nn.ReLU(),
        nn.Dropout(0.2),
        nn.Linear(width, 10),
    )


def evaluate(model: nn.Module, data: Digits) -> tuple[float, float]:
    """Return loss and accuracy on held-out data."""
    model.eval()
    with torch.no_grad():
        output = model(data.images)
        loss = nn.functional.cross_entropy(output, data.labels).item()
        accuracy = (output.argmax(1) == data.labels).float().mean().item()
    return loss, accuracy


def weights_sha256(model: nn.Module) -> str:
    """Return one digest over all weights."""
    digest = hashlib.sha256()
    for name, tensor in sorted(model.state_dict().items()):
        digest.update(name.encode() + tensor.numpy().tobytes())
    return digest.hexdigest()


def parse() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description="Train a small network on digits.")
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--every", type=int, default=20, help="checkpoint interval in steps")
    parser.add_argument("--width", type=int, default=512)
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--print-every", type=int, default=20)
    return parser.parse_args()


def train(
    args: argparse.Namespace,
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    scheduler: Any,
    loader: Any,
    *,
    ledger: SampleLedger,
) -> int:
    """Train until the last step; return how many this attempt executed."""
    step = start = ft.start_step()
    model.train()
    while step < args.steps:
        for images, labels, ids in loader:
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(model(images), labels)
            loss.backward()
            optimizer.step()
            scheduler.step()
            step += 1
            ledger.record(step, loader.epoch, ids)
            if step % args.print_every == 0 and ft.is_main():
                line = {"seq": step, "epoch": loader.epoch, "loss": round(loss.item(), 6)}
                print(json.dumps(line), flush=True)
            ft.checkpoint(model, optimizer, step=step, every=args.every)
            if step >= args.steps:
                break
    return step - start


def main() -> None:
    """Train, evaluate, and write metrics.json."""
    args = parse()
    torch.manual_seed(args.seed)
    random.seed(args.seed)
    torch.set_num_threads(args.threads)
    torch.use_deterministic_algorithms(True)
    train_data, test_data = load_data()
    loader = DataLoader(train_data, batch_size=args.batch, shuffle=True)
    network = build(args.width)
    optimizer = torch.optim.Adam(network.parameters(), lr=1e-3)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=args.steps)
    ledger = SampleLedger(len(train_data))
    model, optimizer, loader = ft.prepare(
        network, optimizer, loader, scheduler=scheduler, ledger=ledger
    )
    resumed_from = ft.start_step() or None
    executed = train(args, model, optimizer, scheduler, loader, ledger=ledger)
    loss, accuracy = evaluate(network, test_data)
    metrics = {
        "loss": loss,
        "accuracy": accuracy,
        "steps": args.steps,
        "weights_sha256": weights_sha256(network),
        "sample_chain": ledger.chain,
        "samples_seen": ledger.seen,
        "resumed_from": resumed_from,
        "executed_steps_this_attempt": executed,
    }
    if ft.is_main():
        ft.log_metrics(metrics)


if __name__ == "__main__":
    main()
