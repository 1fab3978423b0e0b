# The same, checkpointing and resuming by Ray Train, as its guides to PyTorch and checkpoints show:
# https://docs.ray.io/en/latest/train/getting-started-pytorch.html
# https://docs.ray.io/en/latest/train/user-guides/checkpoints.html
import tempfile
from pathlib import Path

import ray.train
import ray.train.torch
import torch


def train():
    torch.manual_seed(0)
    data = torch.utils.data.TensorDataset(torch.randn(256, 8), torch.randn(256, 1))
    loader = torch.utils.data.DataLoader(data, batch_size=32, shuffle=True)
    loader = ray.train.torch.prepare_data_loader(loader)
    model = ray.train.torch.prepare_model(torch.nn.Linear(8, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    step = 0
    checkpoint = ray.train.get_checkpoint()
    if checkpoint:
        with checkpoint.as_directory() as folder:
            state = torch.load(Path(folder) / "state.pt", weights_only=True)
        model.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
        step = state["step"]
    for epoch in range(step // len(loader), 3):
        for x, y in loader:
            loss = torch.nn.functional.mse_loss(model(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            step += 1
        with tempfile.TemporaryDirectory() as folder:
            state = {
                "model": model.state_dict(),
                "optimizer": optimizer.state_dict(),
                "step": step,
            }
            torch.save(state, Path(folder) / "state.pt")
            saved = ray.train.Checkpoint.from_directory(folder)
            ray.train.report({"loss": loss.item()}, checkpoint=saved)
    print("finished", step)


trainer = ray.train.torch.TorchTrainer(
    train,
    scaling_config=ray.train.ScalingConfig(num_workers=1),
    run_config=ray.train.RunConfig(
        storage_path=str(Path.cwd() / "results"),
        failure_config=ray.train.FailureConfig(max_failures=1),
    ),
)
print("finished", trainer.fit().metrics)
