"""A node left the group; the others form it anew and wait at the store until the time is up."""

import logging

logging.basicConfig(format="%(levelname).1s %(message)s", level=logging.INFO)
log = logging.getLogger("elastic")


class DistStoreError(RuntimeError):
    __module__ = "torch.distributed"


def init_process_group() -> None:
    raise DistStoreError("Timed out after 901 seconds waiting for clients. 3/4 clients joined.")


print("step 22400 loss 1.7713 grad_norm 0.41", flush=True)
print("step 22410 loss 1.7698 grad_norm 0.39", flush=True)
log.warning("keep-alive of node gpu-07_1_0 expired, closing the round and re-rendezvousing")
log.info("group round 1 restarting, world size stays 4, last checkpoint step 22400")
init_process_group()
