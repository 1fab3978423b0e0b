"""Runs torch.distributed.run; a script of its own, for the interpreter that has torch.

A PyTorch built without libuv cannot open the store that torchrun asks for: there, the store of
the older kind is chosen, here and in every rank.
"""

import functools
import importlib
import os
import runpy
import sys
from contextlib import suppress


def _choose_store() -> None:
    distributed = importlib.import_module("torch.distributed")
    store = distributed.TCPStore
    try:
        store("127.0.0.1", 0, is_master=True, wait_for_workers=False, use_libuv=True)
    except RuntimeError as error:
        if "libuv" in str(error):
            os.environ |= {"USE_LIBUV": "0", "TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1"}
            setattr(distributed, "TCPStore", functools.partial(store, use_libuv=False))  # noqa: B010 (a module)


if __name__ == "__main__":
    sys.path[0] = os.getcwd()
    with suppress(ImportError, AttributeError, TypeError):
        _choose_store()
    runpy.run_module("torch.distributed.run", run_name="__main__", alter_sys=True)
