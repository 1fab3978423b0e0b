"""What the harness needs from the world.

Adapters live in chaos.targets and raise `CannotRun` where the machine is at fault. Everything
here has an in-memory twin in chaos.testing.
"""

from chaos.ports.disks import Disks
from chaos.ports.logs import Line, Logs
from chaos.ports.machine import Machine
from chaos.ports.packets import Counted, Flow, Packets, Rule
from chaos.ports.plugins import Fault, Invariant, Scene, Workload
from chaos.ports.processes import Clocks, Processes
from chaos.ports.signs import Signs
from chaos.ports.values import (
    Canary,
    Checkpoint,
    CheckpointTree,
    Death,
    Probe,
    RunSpec,
    Stored,
    Takeover,
    Toxic,
    WriteWindow,
)
from chaos.ports.world import Containers, Files, Network, Runtime, Stack, World

__all__ = [
    "Canary",
    "Checkpoint",
    "CheckpointTree",
    "Clocks",
    "Containers",
    "Counted",
    "Death",
    "Disks",
    "Fault",
    "Files",
    "Flow",
    "Invariant",
    "Line",
    "Logs",
    "Machine",
    "Network",
    "Packets",
    "Probe",
    "Processes",
    "Rule",
    "RunSpec",
    "Runtime",
    "Scene",
    "Signs",
    "Stack",
    "Stored",
    "Takeover",
    "Toxic",
    "Workload",
    "World",
    "WriteWindow",
]
