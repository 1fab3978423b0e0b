"""torchrun itself; a PyTorch built without libuv gets the store of the older kind."""

import functools
import os
import runpy

import torch.distributed

try:
    torch.distributed.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
except RuntimeError:
    os.environ |= {"USE_LIBUV": "0", "TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1"}
    store = functools.partial(torch.distributed.TCPStore, use_libuv=False)
    torch.distributed.TCPStore = store

runpy.run_module("torch.distributed.run", run_name="__main__", alter_sys=True)
