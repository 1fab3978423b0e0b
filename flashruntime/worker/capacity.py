"""What a worker has left: slots, resources, and the accelerators that no attempt has."""

from flashruntime.launch.machine import Machine
from flashruntime.protocol.placement import Resources


class Capacity:
    """Counts what attempts take and give back; for one thread at a time."""

    def __init__(self, slots: int, machine: Machine) -> None:
        self._slots = slots
        self._machine = machine
        self._taken: dict[str, tuple[Resources, tuple[str, ...]]] = {}

    @property
    def has_room(self) -> bool:
        """Whether a slot is free."""
        return len(self._taken) < self._slots

    @property
    def is_unused(self) -> bool:
        """Whether no attempt has anything."""
        return not self._taken

    @property
    def nothing_taken(self) -> bool:
        """Whether no attempt has more than a slot."""
        return all(asked == Resources() for asked, _ in self._taken.values())

    def take(self, lease_id: str, asked: Resources | None) -> tuple[str, ...]:
        """Take a slot and what is asked for; return the accelerators that it now has."""
        asked = asked or Resources()
        used = {device for _, devices in self._taken.values() for device in devices}
        unused = [device for device in self._machine.devices if device not in used]
        devices = tuple(unused[: asked.accelerators])
        self._taken[lease_id] = asked, devices
        return devices

    def give_back(self, lease_id: str) -> None:
        """Give back what an attempt has."""
        self._taken.pop(lease_id, None)

    def free(self) -> Resources:
        """Return what no attempt has asked for."""
        asked = [resources for resources, _ in self._taken.values()]
        whole = self._machine.resources
        return Resources(
            cpus=max(0.0, whole.cpus - sum(each.cpus for each in asked)),
            memory_bytes=max(0, whole.memory_bytes - sum(each.memory_bytes for each in asked)),
            accelerators=max(0, whole.accelerators - sum(each.accelerators for each in asked)),
        )
