"""What a failed compose command means to whoever runs the harness."""

import pytest

from chaos.model import CannotRun
from chaos.targets.command import Ended
from chaos.targets.stack import PortTaken, failure


@pytest.mark.parametrize(
    "errors",
    [
        "Bind for 127.0.0.1:8000 failed: port is already allocated",
        "listen tcp4 127.0.0.1:8000: bind: address already in use\none\ntwo\nthree\nfour",
    ],
)
def test_a_taken_port_is_told_apart_so_that_others_can_be_tried(errors: str) -> None:
    assert isinstance(failure("up", Ended(1, errors)), PortTaken)


def test_an_engine_without_addresses_for_a_network_is_told_with_the_remedy() -> None:
    errors = "could not find an available, non-overlapping IPv4 address pool among the defaults"
    error = failure("up", Ended(1, errors))
    assert "make heal" in str(error)
    assert "docker network prune" in str(error)


def test_any_other_failure_is_told_in_compose_s_own_last_words() -> None:
    error = failure("up", Ended(1, "a\nb\nno such image\n"))
    assert type(error) is CannotRun
    assert "no such image" in str(error)
