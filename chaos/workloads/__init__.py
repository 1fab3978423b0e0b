"""Load that the system carries while faults hit it."""
