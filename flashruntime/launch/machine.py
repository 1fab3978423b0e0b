"""What this machine has for its tasks: cores, memory, accelerators."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from flashruntime.launch import memory
from flashruntime.launch.cores import usable_cores
from flashruntime.protocol.placement import Resources

VISIBLE = "CUDA_VISIBLE_DEVICES"
_DEVICE = re.compile(r"nvidia([0-9]{1,4})")


@dataclass(frozen=True, slots=True)
class Machine:
    """Resources, and the names of the accelerators as VISIBLE takes them."""

    resources: Resources
    devices: tuple[str, ...] = ()


def this_machine(env: Mapping[str, str], dev: Path = Path("/dev")) -> Machine:
    """Return what processes of this one may use: its affinity and control group say it."""
    devices = devices_of(env.get(VISIBLE), dev)
    return Machine(
        Resources(
            cpus=usable_cores(), memory_bytes=memory.limit_bytes(), accelerators=len(devices)
        ),
        devices,
    )


def devices_of(visible: str | None, dev: Path) -> tuple[str, ...]:
    """Return the accelerators that are there, or those of them that are to be seen."""
    try:
        found = [match[1] for path in dev.iterdir() if (match := _DEVICE.fullmatch(path.name))]
    except OSError:
        found = []
    if visible is None:
        return tuple(sorted(found, key=int))
    named = [name.strip() for name in visible.split(",")]
    shown = named[: named.index("-1")] if "-1" in named else named
    return tuple(dict.fromkeys(filter(None, shown)))[: len(found)]
