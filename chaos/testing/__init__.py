"""In-memory twins of the ports: a machine without containers, on which nothing sleeps."""

from chaos.testing.disks import FakeDisks
from chaos.testing.machine import FakeMachine, FakeNetwork
from chaos.testing.system import FakeJob, FakeSystem

__all__ = ["FakeDisks", "FakeJob", "FakeMachine", "FakeNetwork", "FakeSystem"]
