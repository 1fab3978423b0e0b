"""The models of the training payloads, on synthetic data."""

import torch

TOKENS = 32


class Tiny(torch.nn.Module):  # type: ignore[misc]
    """A perceptron of some hundred parameters."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = torch.nn.Sequential(
            torch.nn.Linear(8, 32), torch.nn.ReLU(), torch.nn.Linear(32, 1)
        )

    def loss(self) -> torch.Tensor:
        return self.layers(torch.randn(32, 8)).square().mean()


class Transformer(torch.nn.Module):  # type: ignore[misc]
    """An encoder with one sequence a step."""

    def __init__(self, vocabulary: int, width: int, layers: int) -> None:
        super().__init__()
        self.vocabulary = vocabulary
        self.embed = torch.nn.Embedding(vocabulary, width)
        layer = torch.nn.TransformerEncoderLayer(
            width, 8, 4 * width, dropout=0.0, batch_first=True, norm_first=True
        )
        self.body = torch.nn.TransformerEncoder(layer, layers, enable_nested_tensor=False)
        self.head = torch.nn.Linear(width, vocabulary)

    def loss(self) -> torch.Tensor:
        words = torch.randint(self.vocabulary, (1, TOKENS + 1))
        guess = self.head(self.body(self.embed(words[:, :-1])))
        return torch.nn.functional.cross_entropy(guess.flatten(0, 1), words[:, 1:].flatten())


def build(name: str) -> Tiny | Transformer:
    """Return `tiny`, `transformer` (54 million parameters) or `smoke`, always the same weights."""
    torch.manual_seed(0)
    if name == "tiny":
        return Tiny()
    return Transformer(16_384, 512, 12) if name == "transformer" else Transformer(512, 64, 2)


def train_step(model: Tiny | Transformer, optimizer: torch.optim.Optimizer) -> float:
    """Do one step and return its loss."""
    optimizer.zero_grad()
    loss = model.loss()
    loss.backward()
    optimizer.step()
    return float(loss)
