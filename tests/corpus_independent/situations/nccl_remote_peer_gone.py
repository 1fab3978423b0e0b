"""After 1,840 steps NCCL loses a remote peer; the C++ side terminates the process."""

import os

for step in range(1800, 1841, 10):
    print(f"step {step} loss {2.1 - step / 10000:.4f} 412 samples/s", flush=True)
what = (
    "[PG ID 0 PG GUID 0(default_pg) Rank 3] Process group watchdog thread terminated with "
    "exception: NCCL error: remote process exited or there was a network error, NCCL version "
    "2.21.5\nncclRemoteError: A call failed possibly due to a network error or a remote process "
    "exiting prematurely.\nLast error:\nsocketProgress: Connection closed by remote peer "
    "gpu-07.cluster.internal<41772>\nException raised from checkForNCCLErrorsInternal at "
    "/pytorch/torch/csrc/distributed/c10d/ProcessGroupNCCL.cpp:2027 (most recent call first):\n"
    "frame #0: c10::Error::Error(c10::SourceLocation, std::string) + 0x96 (0x7f2a6d36c446 in "
    "libc10.so)\nframe #1: <unknown function> + 0x145c0 (0x7f2ab5b8c5c0 in libtorch.so)\n"
)
os.write(
    2,
    (
        f"[rank3]:[E212 03:14:09.271830112 ProcessGroupNCCL.cpp:1595] {what}\n"
        "terminate called after throwing an instance of 'c10::DistBackendError'\n"
        f"  what():  {what}\n"
    ).encode(),
)
os.abort()
