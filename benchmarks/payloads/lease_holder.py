"""`lease_holder.py URL JOB`: claims a task in an open session, and renews it until it is killed.

Each line says what was answered, and CLOCK_MONOTONIC then.
"""

import sys
import time
from threading import Thread

from flashruntime.client import CoordinatorClient
from flashruntime.protocol.nodes import NodeRegistration
from flashruntime.protocol.tasks import ClaimRequest

NODE = "holder"
BEAT_S = 5.0

with (
    CoordinatorClient(sys.argv[1]) as client,
    CoordinatorClient(sys.argv[1], timeout_s=60) as own,
):
    session_id = client.register(NodeRegistration(node_id=NODE)).session_id
    with own.session(NODE, session_id) as lines:
        said = iter(lines)
        next(said)
        Thread(target=list, args=(said,), daemon=True).start()
        request = ClaimRequest(node_id=NODE, session_id=session_id, job_id=sys.argv[2], wait_s=10)
        lease = client.claim(request)
        if lease is None:
            raise SystemExit("there was no task to claim")
        print(f"claimed {time.monotonic_ns()}", flush=True)
        while True:
            time.sleep(BEAT_S)
            client.heartbeat(lease.lease_id)
            print(f"beat {time.monotonic_ns()}", flush=True)
