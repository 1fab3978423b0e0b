"""The stack of the chaos experiments is started with no fault, and two calls are timed in turn
from the host: a node's heartbeat, which the coordinator writes to its ledger, and an upload of
1 MiB. Each goes to the coordinator's own port and to the listener of Toxiproxy that leads there;
both ports are published by the engine, so the difference is the proxy and one more network hop.
"""

import os
import time
from functools import partial

from benchmarks import composed
from benchmarks.scenario import Bench, Scenario
from benchmarks.schema import Interval, Section
from flashruntime.client import CoordinatorClient
from flashruntime.protocol.nodes import NodeRegistration

MILLI = 1_000.0
UPLOAD = os.urandom(1 << 20)
NODE = "bench"
SMOKE_CALLS = 5
WHATS = (("beat", "node heartbeat"), ("upload", "upload of 1 MiB"))


def run(bench: Bench) -> None:
    """Measure what the way through Toxiproxy costs without any fault."""
    count = SMOKE_CALLS if bench.smoke else bench.count(40)
    with (
        composed.stack(bench) as addresses,
        CoordinatorClient(addresses["coordinator"]) as direct,
        CoordinatorClient(addresses["clients"]) as proxied,
    ):
        direct.register(NodeRegistration(node_id=NODE))
        arms = {"proxied": partial(_calls, proxied), "direct": partial(_calls, direct)}
        taken = bench.take(count, arms, warm_up=3)
    for name, what in WHATS:
        ours, theirs = (
            [MILLI * each for each in taken[f"{way}.{name}"]] for way in ("proxied", "direct")
        )
        bench.report(
            ours,
            variant=what,
            comparators={"direct": theirs},
            notes=[
                "every chaos experiment pays this on each call of a worker, so its times are upper "
                "bounds",
            ],
        )


def _calls(client: CoordinatorClient) -> dict[str, float]:
    begun_s = time.monotonic()
    client.node_heartbeat(NODE)
    beaten_s = time.monotonic()
    client.put_artifact("bench/upload", UPLOAD)
    return {"beat": beaten_s - begun_s, "upload": time.monotonic() - beaten_s}


SCENARIO = Scenario(
    name="proxy_overhead",
    section=Section.RESILIENCE,
    hypothesis="The way through Toxiproxy costs well under a millisecond a call.",
    method=__doc__,
    unit="ms",
    budget_s=60,
    interval=Interval(start="the call of the client", end="its return"),
    targets=composed.COMPOSE_ONLY,
    run=run,
)
