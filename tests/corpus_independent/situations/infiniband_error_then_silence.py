"""InfiniBand reports lost packets, the collective never returns, and no step follows."""

import sys
import time

for step in range(700, 731, 10):
    print(f"step {step} loss {3.2 - step / 5000:.4f}", flush=True)
print(
    "gpu-12:4711:4802 [3] ib_plugin.c:1615 NCCL WARN NET/IB : Got completion from peer "
    "10.20.0.14<41772> with status=12 opcode=0 len=0 vendor err 129 (Recv)\n"
    "gpu-12:4711:4802 [3] NCCL INFO transport/net.cc:1298 -> 6\n"
    "gpu-12:4711:4802 [3] NCCL INFO proxy.cc:694 -> 6\n"
    "gpu-12:4711:4802 [3] NCCL INFO proxy.cc:874 -> 6 [Progress Thread]",
    file=sys.stderr,
    flush=True,
)
time.sleep(3600)
