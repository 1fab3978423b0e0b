"""Metric uploads are retried with success; later the process leaves by os._exit(1), silently."""

import logging
import os

logging.basicConfig(format="%(asctime)s %(levelname)s [%(name)s] %(message)s", level=logging.INFO)
pool = logging.getLogger("urllib3.connectionpool")
tracker = logging.getLogger("tracker")

print("step 100 loss 2.313", flush=True)
for left in (2, 1):
    pool.warning(
        "Retrying (Retry(total=%d, connect=None, read=None, redirect=None, status=None)) after "
        "connection broken by 'SSLEOFError(8, '[SSL: UNEXPECTED_EOF_WHILE_READING] EOF occurred "
        "in violation of protocol (_ssl.c:1006)')': /api/2.0/mlflow/runs/log-batch",
        left,
    )
tracker.info("uploaded 100 metrics")
for step in range(200, 1000, 100):
    print(f"step {step} loss {2.4 - step / 2000:.3f}", flush=True)
os._exit(1)
