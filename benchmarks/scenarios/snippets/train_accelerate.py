# The same, checkpointing and resuming by Accelerate, as its guide to checkpoints shows it:
# https://huggingface.co/docs/accelerate/usage_guides/checkpoint
from pathlib import Path

import torch
from accelerate import Accelerator


class Progress:
    step = 0

    def state_dict(self):
        return {"step": self.step}

    def load_state_dict(self, state):
        self.step = state["step"]


torch.manual_seed(0)
data = torch.utils.data.TensorDataset(torch.randn(256, 8), torch.randn(256, 1))
loader = torch.utils.data.DataLoader(data, batch_size=32, shuffle=True)
model = torch.nn.Linear(8, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
accelerator, progress = Accelerator(), Progress()
model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
accelerator.register_for_checkpointing(progress)
if Path("ckpt").exists():
    accelerator.load_state("ckpt")
first, skipped = divmod(progress.step, len(loader))
for epoch in range(first, 3):
    rest = accelerator.skip_first_batches(loader, skipped) if epoch == first else loader
    for x, y in rest:
        loss = torch.nn.functional.mse_loss(model(x), y)
        optimizer.zero_grad()
        accelerator.backward(loss)
        optimizer.step()
        progress.step += 1
        if progress.step % 10 == 0:
            accelerator.save_state("ckpt")
print("finished", progress.step)
