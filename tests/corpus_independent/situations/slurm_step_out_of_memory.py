"""A step started by srun is killed for memory; srun reports it and passes the status on."""

import signal
import subprocess
import sys

STEP = """
import os, signal
print("epoch 5 batch 410 loss 0.881", flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""

status = subprocess.run([sys.executable, "-c", STEP], check=False).returncode
if status == -signal.SIGKILL:
    print(
        "slurmstepd: error: Detected 1 oom_kill event in StepId=440575.0. Some of the step tasks "
        "have been OOM Killed.\nsrun: error: nid001277: task 0: Out Of Memory",
        file=sys.stderr,
    )
sys.exit(128 - status)
