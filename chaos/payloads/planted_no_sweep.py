"""A bug for `plant.py`: leases that are over are never taken away.

`LeaseManager.sweep` is redefined at the end of `flashruntime.leases.manager` to find none.
"""

MODULE = "flashruntime.leases.manager"
NEEDS = "    def sweep(self) -> int:"
CODE = """

LeaseManager.sweep = lambda _self: 0  # (planted)
"""
