"""An all-reduce does not complete within ten minutes; the watchdog takes the process down."""

import os

print("step 49 loss 3.0551", flush=True)
timeout = (
    "[Rank 0] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=50, "
    "OpType=ALLREDUCE, NumelIn=1, NumelOut=1, Timeout(ms)=600000) ran for 600011 milliseconds "
    "before timing out."
)
head = "[rank0]:[E1016 03:33:45.317536384 ProcessGroupNCCL.cpp"
os.write(
    2,
    (
        f"{head}:568] {timeout}\n"
        f"{head}:1583] [PG 0 Rank 0] Exception (either an error or timeout) detected by watchdog "
        "at work: 50, last enqueued NCCL work: 50, last completed NCCL work: 49.\n"
        f"{head}:582] [Rank 0] Some NCCL operations have failed or timed out. Due to the "
        "asynchronous nature of CUDA kernels, subsequent GPU operations might run on "
        "corrupted/incomplete data.\n"
        f"{head}:588] [Rank 0] To avoid data inconsistency, we are taking the entire process "
        "down.\n"
        "terminate called after throwing an instance of 'c10::DistBackendError'\n"
        "  what():  [PG 0 Rank 0] Process group watchdog thread terminated with exception: "
        f"{timeout}\n"
    ).encode(),
)
os.abort()
