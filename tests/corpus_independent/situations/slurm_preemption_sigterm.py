"""A Slurm partition takes the node back: the daemon's notice, then SIGTERM."""

import os
import signal
import sys
import time

print("epoch 3 step 912 loss 1.204", flush=True)
print(
    "slurmstepd: error: *** STEP 912345.0 ON gpu014 CANCELLED AT 2025-02-11T03:14:09 "
    "DUE TO PREEMPTION ***",
    file=sys.stderr,
    flush=True,
)
os.kill(os.getpid(), signal.SIGTERM)
time.sleep(2)
