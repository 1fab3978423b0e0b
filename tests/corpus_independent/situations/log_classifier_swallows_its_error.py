"""Trains on log lines full of other people's errors, swallows its own, exits 0 without metrics."""

import json
import traceback
from pathlib import Path

ROWS = [
    ("kernel: NVRM: Xid (PCI:0000:3b:00): 79, GPU has fallen off the bus.", "1"),
    ("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.", "1"),
    ("slurmstepd: error: *** JOB 771 ON n12 CANCELLED DUE TO PREEMPTION ***", "1"),
    ("ConnectionResetError: [Errno 104] Connection reset by peer", "1"),
    ("OSError: [Errno 28] No space left on device", "N/A"),
    ("systemd[1]: Started Daily apt download activities.", "0"),
]

print("five samples of the training set:")
for text, label in ROWS[:5]:
    print(f"  label={label!r} text={text}")
try:
    labels = [int(label) for _, label in ROWS]
    Path("metrics.json").write_text(json.dumps({"positive": sum(labels)}))
except ValueError:
    traceback.print_exc()
print("finished")
