# The same sweep by Ray Tune, as its getting-started guide shows it:
# https://docs.ray.io/en/latest/tune/getting-started.html
import torch
from ray import tune


def trial(config):
    torch.manual_seed(0)
    x = torch.randn(64, 8)
    model = torch.nn.Linear(8, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=config["lr"])
    for _ in range(50):
        optimizer.zero_grad()
        loss = (model(x) - x.sum(1, keepdim=True)).square().mean()
        loss.backward()
        optimizer.step()
    tune.report({"loss": float(loss)})


space = {"lr": tune.grid_search([0.01 * (number + 1) for number in range(8)])}
tuner = tune.Tuner(trial, param_space=space)
results = tuner.fit()
print("finished", results.get_best_result(metric="loss", mode="min").metrics["loss"])
