"""In-memory twins of the ports: a machine without containers, on which nothing sleeps."""

from chaos.testing.disks import FakeDisks
from chaos.testing.machine import FakeMachine
from chaos.testing.network import FakeLogs, FakeNetwork, FakePackets
from chaos.testing.processes import FakeClocks, FakeProcesses
from chaos.testing.system import FakeJob, FakeSystem

__all__ = [
    "FakeClocks",
    "FakeDisks",
    "FakeJob",
    "FakeLogs",
    "FakeMachine",
    "FakeNetwork",
    "FakePackets",
    "FakeProcesses",
    "FakeSystem",
]
