"""A bug for `plant.py`: the ledger is never synced.

What `flashruntime.leases.journal` asks of SQLite is redefined at the end of its module, so that a
change is answered before it is durable.
"""

MODULE = "flashruntime.leases.journal"
NEEDS = "def synchronous("
CODE = """

Journal.synchronous = property(lambda _self: "OFF")  # (planted)
"""
