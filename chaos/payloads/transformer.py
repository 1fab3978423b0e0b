"""A real training job, written as a user would: a small language model over bytes, exact resume.

It has what makes an exact resume hard: dropout, AdamW with a schedule, clipped gradients, and
shuffled data that worker processes crop and damage at random. The text is the source code of
Python's own library. metrics.json proves the run: the digest of the final weights, and a hash chain
over every sample as the network saw it.
"""

import argparse
import hashlib
import json
import os
import random
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy
import torch
from torch import nn
from torch.utils.data import DataLoader

import flashruntime.torch as ft

BYTES = 256
DAMAGED_SHARE = 0.05
TEST_SAMPLES = 32


@dataclass(frozen=True, slots=True)
class Size:
    """Shape of a network; `context` is the length of a sample in bytes."""

    width: int
    layers: int
    heads: int
    context: int


SIZES = {
    "tiny": Size(64, 2, 2, 64),  # 0.1 million weights
    "small": Size(256, 4, 4, 128),  # 3 million
    "medium": Size(512, 8, 8, 256),  # 25 million
    "large": Size(768, 12, 12, 256),  # 85 million
}


class Text:
    """Pieces of the text, each `context` long and one further; a sample comes with its index.

    With `augment` it is cropped at a random place and some of its bytes are replaced.
    """

    def __init__(self, text: bytes, context: int, *, augment: bool) -> None:
        self.text = torch.frombuffer(bytearray(text), dtype=torch.uint8).long()
        self.context = context
        self.augment = augment

    def __len__(self) -> int:
        return len(self.text) // self.context - 1

    def __getitem__(self, index: int) -> tuple[torch.Tensor, torch.Tensor, int]:
        begin = index * self.context
        if self.augment:
            begin += random.randrange(self.context)
        piece = self.text[begin : begin + self.context + 1]
        inputs, targets = piece[:-1].clone(), piece[1:]
        if self.augment:
            damaged = torch.rand(self.context) < DAMAGED_SHARE
            noise = numpy.random.randint(0, BYTES, self.context)
            inputs[damaged] = torch.from_numpy(noise)[damaged]
        return inputs, targets, index


class Block(nn.Module):  # type: ignore[misc]
    """Causal attention and a layer per position, each behind a norm and beside a shortcut."""

    def __init__(self, size: Size, dropout: float) -> None:
        super().__init__()
        width = size.width
        self.heads, self.dropout = size.heads, dropout
        self.norms = nn.ModuleList([nn.LayerNorm(width), nn.LayerNorm(width)])
        self.project_in = nn.Linear(width, 3 * width)
        self.project_out = nn.Linear(width, width)
        self.feed = nn.Sequential(
            nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width), nn.Dropout(dropout)
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return `x` (batch, position, width) after this block."""
        batch, length, width = x.shape
        parts = self.project_in(self.norms[0](x)).view(batch, length, 3, self.heads, -1)
        query, key, value = parts.permute(2, 0, 3, 1, 4)
        seen = nn.functional.scaled_dot_product_attention(
            query, key, value, is_causal=True, dropout_p=self.dropout if self.training else 0.0
        )
        x = x + self.project_out(seen.transpose(1, 2).reshape(batch, length, width))
        return x + self.feed(self.norms[1](x))


class Transformer(nn.Module):  # type: ignore[misc]
    """Predicts the next byte at each position."""

    def __init__(self, size: Size, dropout: float) -> None:
        super().__init__()
        self.token = nn.Embedding(BYTES, size.width)
        self.position = nn.Parameter(torch.randn(size.context, size.width) * 0.02)
        self.dropout = nn.Dropout(dropout)
        self.blocks = nn.Sequential(*(Block(size, dropout) for _ in range(size.layers)))
        self.norm = nn.LayerNorm(size.width)
        self.head = nn.Linear(size.width, BYTES, bias=False)
        nn.init.normal_(self.token.weight, std=0.02)
        self.head.weight = self.token.weight

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        """Return a score for each byte at each position."""
        x = self.dropout(self.token(tokens) + self.position[: tokens.shape[1]])
        return self.head(self.norm(self.blocks(x)))


class Ledger:
    """Which samples were seen, in what order and how altered, by all ranks; part of the state."""

    def __init__(self, samples: int) -> None:
        self.chain = hashlib.sha256(b"").hexdigest()
        self.seen = 0
        self.epoch = 0
        self.counts = torch.zeros(samples, dtype=torch.int64)

    def record(self, step: int, epoch: int, inputs: torch.Tensor, ids: torch.Tensor) -> None:
        """Add a batch; a sample that comes twice in one epoch ends the run."""
        if epoch != self.epoch:
            self.epoch = epoch
            self.counts.zero_()
        rows = _from_all_ranks(torch.cat([ids[:, None], inputs], 1))
        self.counts[rows[:, 0]] += 1
        if int(self.counts.max()) > 1:
            raise SystemExit(f"step {step}: sample {int(self.counts.argmax())} was seen twice")
        entry = f"{self.chain} {step} ".encode() + rows.numpy().tobytes()
        self.chain = hashlib.sha256(entry).hexdigest()
        self.seen += len(rows)

    def state_dict(self) -> dict[str, Any]:
        """Return the whole ledger."""
        return dict(vars(self))

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Take the ledger over."""
        vars(self).update(state)


def _from_all_ranks(rows: torch.Tensor) -> torch.Tensor:
    if ft.world_size() == 1:
        return rows
    gathered = [torch.empty_like(rows) for _ in range(ft.world_size())]
    torch.distributed.all_gather(gathered, rows)
    return torch.cat(gathered)


def load_text(size_bytes: int) -> bytes:
    """Return the source of Python's library, module by module in the order of their names."""
    text = b""
    for path in sorted(Path(os.__file__).parent.glob("*.py")):
        text += path.read_bytes()
        if len(text) >= size_bytes:
            return text[:size_bytes]
    raise SystemExit(f"Python's library holds only {len(text)} bytes; ask for fewer --samples")


def weights_sha256(model: nn.Module) -> str:
    """Return one digest over all weights."""
    digest = hashlib.sha256()
    for name, tensor in sorted(model.state_dict().items()):
        digest.update(name.encode() + tensor.cpu().numpy().tobytes())
    return digest.hexdigest()


def evaluate(model: nn.Module, data: Text) -> float:
    """Return the loss on text that was not trained on, in nats a byte."""
    model.eval()
    samples = [data[index] for index in range(len(data))]
    inputs, targets = (torch.stack([sample[i] for sample in samples]) for i in (0, 1))
    with torch.no_grad():
        output = model(inputs.to(ft.device()))
    return float(nn.functional.cross_entropy(output.cpu().flatten(0, 1), targets.flatten()))


def parse() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description="Train a small language model over bytes.")
    parser.add_argument("--size", choices=SIZES, default="tiny")
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--every", type=int, default=10, help="checkpoint interval in steps")
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--samples", type=int, default=256, help="of an epoch")
    parser.add_argument("--workers", type=int, default=2, help="processes that load data")
    parser.add_argument("--dropout", type=float, default=0.1)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--slow", type=float, default=0.0, help="seconds to wait in each step")
    parser.add_argument("--print-every", type=int, default=20)
    return parser.parse_args()


def train(
    args: argparse.Namespace,
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    scheduler: Any,
    loader: Any,
    *,
    ledger: Ledger,
) -> int:
    """Train until the last step; return how many this attempt executed."""
    step = start = ft.start_step()
    model.train()
    while step < args.steps:
        for inputs, targets, ids in loader:
            optimizer.zero_grad()
            output = model(inputs.to(ft.device()))
            loss = nn.functional.cross_entropy(
                output.flatten(0, 1), targets.to(ft.device()).flatten()
            )
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            scheduler.step()
            step += 1
            ledger.record(step, loader.epoch, inputs, ids)
            if args.slow:
                time.sleep(args.slow)
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
    numpy.random.seed(args.seed)
    torch.set_num_threads(args.threads)
    torch.use_deterministic_algorithms(True)
    size = SIZES[args.size]
    text = load_text((args.samples + TEST_SAMPLES + 2) * size.context)
    edge = (args.samples + 1) * size.context
    train_data = Text(text[:edge], size.context, augment=True)
    test_data = Text(text[edge:], size.context, augment=False)
    loader = DataLoader(train_data, args.batch, shuffle=True, num_workers=args.workers)
    network = Transformer(size, args.dropout).to(ft.device())
    optimizer = torch.optim.AdamW(network.parameters(), lr=1e-3)
    scheduler = torch.optim.lr_scheduler.OneCycleLR(optimizer, 1e-3, total_steps=args.steps)
    ledger = Ledger(len(train_data))
    model, optimizer, loader = ft.prepare(
        network, optimizer, loader, scheduler=scheduler, ledger=ledger
    )
    resumed_from = ft.start_step() or None
    executed = train(args, model, optimizer, scheduler, loader, ledger=ledger)
    metrics = {
        "loss": evaluate(network, test_data),
        "steps": args.steps,
        "parameters": sum(weights.numel() for weights in network.parameters()),
        "weights_sha256": weights_sha256(network),
        "text_sha256": hashlib.sha256(text).hexdigest(),
        "sample_chain": ledger.chain,
        "samples_seen": ledger.seen,
        "resumed_from": resumed_from,
        "executed_steps_this_attempt": executed,
    }
    if ft.is_main():
        print(json.dumps(metrics), flush=True)
        ft.log_metrics(metrics)


if __name__ == "__main__":
    main()
