"""Runs a machine for a bounded number of lives."""

from hypothesis import HealthCheck, Phase, settings
from hypothesis.stateful import run_state_machine_as_test

from tests.unit.leases.machine_rules import CoordinatorMachine

QUICK = (Phase.explicit, Phase.reuse, Phase.generate)


def run(
    machine: type[CoordinatorMachine], examples: int, steps: int, *, shrink: bool = False
) -> None:
    """Shrinking what failed can take minutes, more than a test has by default."""
    run_state_machine_as_test(  # type: ignore[no-untyped-call]
        machine,
        settings=settings(
            max_examples=examples,
            stateful_step_count=steps,
            deadline=None,
            phases=(*QUICK, Phase.shrink) if shrink else QUICK,
            suppress_health_check=list(HealthCheck),
        ),
    )
