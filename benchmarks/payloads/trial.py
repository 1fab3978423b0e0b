"""A trial of a sweep: imports torch, fits a line with a learning rate, writes metrics.json."""

import argparse
import json
from pathlib import Path

import torch

parser = argparse.ArgumentParser()
parser.add_argument("--lr", type=float, required=True)
lr = parser.parse_args().lr
torch.manual_seed(0)
x = torch.randn(64, 8)
model = torch.nn.Linear(8, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=lr)
for _ in range(50):
    optimizer.zero_grad()
    loss = (model(x) - x.sum(1, keepdim=True)).square().mean()
    loss.backward()
    optimizer.step()
Path("metrics.json").write_text(json.dumps({"loss": float(loss)}), encoding="utf-8")
