# The same, checkpointing and resuming by flashruntime, as README.md of this project shows it.
import torch

import flashruntime.torch as ft

torch.manual_seed(0)
data = torch.utils.data.TensorDataset(torch.randn(256, 8), torch.randn(256, 1))
loader = torch.utils.data.DataLoader(data, batch_size=32, shuffle=True)
model = torch.nn.Linear(8, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
model, optimizer, loader = ft.prepare(model, optimizer, loader)
step = ft.start_step()
for epoch in range(loader.epoch, 3):
    for x, y in loader:
        loss = torch.nn.functional.mse_loss(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        step += 1
        ft.checkpoint(model, optimizer, step=step, every=10)
print("finished", step)
