"""A worker process of the data loader is suddenly gone and left no message."""

import multiprocessing
import os
import queue


def work() -> None:
    os._exit(1)


def next_batch() -> bytes:
    context = multiprocessing.get_context("fork")
    worker = context.Process(target=work)
    worker.start()
    worker.join()
    try:
        raise queue.Empty
    except queue.Empty as e:
        raise RuntimeError(f"DataLoader worker (pid(s) {worker.pid}) exited unexpectedly") from e


print("epoch 1 batch 83", flush=True)
next_batch()
