"""`lease_holder.py URL JOB`: claims a task and renews its lease until it is killed.

Each line says what was answered, and CLOCK_MONOTONIC then.
"""

import sys
import time

from flashruntime.client import CoordinatorClient
from flashruntime.protocol.tasks import ClaimRequest

BEATS_A_LEASE = 3

with CoordinatorClient(sys.argv[1]) as client:
    lease = client.claim(ClaimRequest(node_id="holder", job_id=sys.argv[2], wait_s=10))
    if lease is None:
        raise SystemExit("there was no task to claim")
    print(f"claimed {time.monotonic_ns()}", flush=True)
    while True:
        time.sleep(lease.lease_seconds / BEATS_A_LEASE)
        client.heartbeat(lease.lease_id)
        print(f"beat {time.monotonic_ns()}", flush=True)
