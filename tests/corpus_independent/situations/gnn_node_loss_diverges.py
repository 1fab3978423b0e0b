"""Node classification with a learning rate far too high; the loss of the nodes becomes NaN."""

import math
import random


class NodeLossError(ArithmeticError):
    """Raised by the trainer's own check of the loss per node."""


random.seed(7)
nodes = [random.uniform(-1.0, 1.0) for _ in range(64)]
weight, rate = 0.5, 40.0
for step in range(2000):
    loss = sum((weight * node - node) * (weight * node - node) for node in nodes) / len(nodes)
    if step % 25 == 0:
        print(f"step {step} node_loss {loss:.4g}", flush=True)
    if math.isnan(loss):
        raise NodeLossError(f"node loss is {loss} at step {step} (lr={rate}, seed=7)")
    weight -= rate * sum(2 * (weight * node - node) * node for node in nodes) / len(nodes)
