"""Two ranks: rank 1 has a dtype bug, rank 0 then loses its peer, the launcher raises a summary."""

import os
import subprocess
import sys
import time
from pathlib import Path


class ChildFailedError(Exception):
    __module__ = "torch.distributed.elastic.multiprocessing.errors"


def rank_1() -> None:
    raise RuntimeError("expected scalar type Float but found Half")


def rank_0(link: int) -> None:
    while os.read(link, 1):
        pass
    raise RuntimeError(
        "[/pytorch/third_party/gloo/gloo/transport/tcp/pair.cc:547] "
        "Connection closed by peer [127.0.0.1]:37519"
    )


def failure(index: int, rank: int, child: "subprocess.Popen[bytes]") -> str:
    return (
        f"[{index}]:\n  time      : {time.strftime('%Y-%m-%d_%H:%M:%S')}\n"
        f"  host      : gpu-04\n  rank      : {rank} (local_rank: {rank})\n"
        f"  exitcode  : {child.returncode} (pid: {child.pid})\n  error_file: <N/A>\n"
        "  traceback : To enable traceback see: "
        "https://pytorch.org/docs/stable/elastic/errors.html"
    )


def launch() -> None:
    reading, writing = os.pipe()
    command = [sys.executable, __file__]
    second = subprocess.Popen([*command, "1"], pass_fds=[writing])
    os.close(writing)
    first = subprocess.Popen([*command, "0", str(reading)], pass_fds=[reading])
    second.wait()
    first.wait()
    rule, line = "=" * 60, "-" * 60
    raise ChildFailedError(
        f"\n{rule}\n{Path(__file__).name} FAILED\n{line}\nFailures:\n"
        f"{failure(1, 0, first)}\n{line}\nRoot Cause (first observed failure):\n"
        f"{failure(0, 1, second)}\n{rule}"
    )


if len(sys.argv) == 1:
    launch()
elif sys.argv[1] == "1":
    rank_1()
else:
    rank_0(int(sys.argv[2]))
