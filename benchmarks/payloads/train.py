"""`train.py WAY MODEL STEPS EVERY CRASH_AT`: trains, and dies by SIGKILL after step CRASH_AT once.

WAY `flash` checkpoints every EVERY steps and resumes; it dies only in its first attempt. WAY
`bare` knows no checkpoints. CRASH_AT 0: it does not die.
"""

import json
import os
import signal
import sys
from pathlib import Path

import torch
from models import build, train_step

way, name = sys.argv[1:3]
steps, every, crash_at = (int(word) for word in sys.argv[3:])
if os.environ.get("FLASHML_RESTART_COUNT", "0") != "0":
    crash_at = 0
model = build(name)
optimizer = torch.optim.AdamW(model.parameters())
start = 0
if way == "flash":
    import flashruntime.torch as ft

    model, optimizer, _ = ft.prepare(model, optimizer)
    start = ft.start_step()
for step in range(start + 1, steps + 1):
    loss = train_step(model, optimizer)
    if way == "flash":
        ft.checkpoint(model, optimizer, step=step, every=every)
    if step == crash_at:
        os.kill(os.getpid(), signal.SIGKILL)
place = Path(os.environ.get("FLASHML_OUTPUT_DIR", "."))
found = {"steps_done": steps, "start": start, "loss": loss}
(place / "metrics.json").write_text(json.dumps(found), encoding="utf-8")
