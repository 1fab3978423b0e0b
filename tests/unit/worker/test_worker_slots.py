"""Several attempts of one worker: what they take, and requests that reach all of them."""

from pathlib import Path

import pytest

from flashruntime.config import WorkerSettings
from flashruntime.errors import ConfigError
from flashruntime.launch.machine import Machine, devices_of, this_machine
from flashruntime.protocol.placement import Resources
from flashruntime.testing import ManualClock
from flashruntime.worker.capacity import Capacity
from flashruntime.worker.control import StopRequest
from flashruntime.worker.execution import AttemptSettings


def test_attempts_take_and_give_back_slots_resources_and_accelerators() -> None:
    whole = Resources(cpus=4, memory_bytes=100, accelerators=3)
    capacity = Capacity(2, Machine(whole, ("0", "1", "5")))
    assert capacity.nothing_taken
    assert capacity.take("a", Resources(cpus=3, accelerators=2)) == ("0", "1")
    assert capacity.free() == Resources(cpus=1, memory_bytes=100, accelerators=1)
    assert capacity.take("b", None) == ()
    assert not capacity.has_room
    assert not capacity.nothing_taken
    capacity.give_back("a")
    assert capacity.nothing_taken, "a slot alone takes nothing"
    assert capacity.take("c", Resources(accelerators=1)) == ("0",)
    capacity.give_back("b")
    capacity.give_back("c")
    assert capacity.is_unused
    assert capacity.free() == whole


def test_what_does_not_fit_after_all_leaves_nothing_below_zero() -> None:
    capacity = Capacity(1, Machine(Resources(cpus=1)))
    capacity.take("a", Resources(cpus=2, memory_bytes=5, accelerators=1))
    assert capacity.free() == Resources()


def test_a_request_above_reaches_those_below_and_never_the_other_way_round() -> None:
    clock = ManualClock()
    worker = StopRequest(20.0, clock)
    attempts = StopRequest(20.0, clock, above=worker)
    attempts.request()
    assert not worker.requested
    clock.advance(15)
    worker.request()
    assert attempts.remaining_s() == pytest.approx(5.0), "the nearest deadline counts"
    assert StopRequest(20.0, clock, above=worker).requested


@pytest.mark.parametrize(
    ("visible", "devices"),
    [(None, "0 1 10"), ("", ""), ("1", "1"), ("0, 10", "0 10"), ("0,-1,1", "0"),
     ("a,b,c,d", "a b c")],
)  # fmt: skip
def test_accelerators_are_those_that_are_there_and_to_be_seen(
    tmp_path: Path, visible: str | None, devices: str
) -> None:
    for name in ("nvidia0", "nvidia10", "nvidia1", "nvidiactl", "nvidia-uvm", "null"):
        (tmp_path / name).touch()
    assert devices_of(visible, tmp_path) == tuple(devices.split())
    assert devices_of(visible, tmp_path / "none") == ()


def test_a_machine_has_cores_and_memory() -> None:
    has = this_machine({}).resources
    assert has.cpus >= 1
    assert has.memory_bytes > 2**20


def test_slots_share_the_cores(tmp_path: Path) -> None:
    def threads(slots: int, **env: str) -> str | None:
        settings = WorkerSettings("http://x", tmp_path, tmp_path, "n", slots=slots)
        return AttemptSettings.of(settings, env).environ.get("OMP_NUM_THREADS")

    assert threads(1) is None
    assert threads(1000) == "1"
    assert threads(2, OMP_NUM_THREADS="7") == "7"


def settings(**env: str) -> WorkerSettings:
    return WorkerSettings.from_env({f"FLASHML_{name}": value for name, value in env.items()})


def test_slots_and_labels_come_from_the_environment() -> None:
    assert settings().slots == 1
    assert settings(SLOTS="4").slots == 4
    assert settings(LABELS=" zone=eu-1, a/b=,").labels == {"zone": "eu-1", "a/b": ""}
    assert not settings(WARM_START="OFF").warm_start


@pytest.mark.parametrize(
    ("env", "rule"),
    [
        ({"SLOTS": "0"}, "at least 1"),
        ({"SLOTS": "1025"}, "at most 1024"),
        ({"LABELS": "zone"}, "key=value"),
        ({"LABELS": "z one=x"}, "key=value"),
        ({"LABELS": "zone=x y"}, "key=value"),
        ({"LABELS": "zone=x\n"}, None),
        ({"LABELS": "a=1,a=2"}, "given twice"),
        ({"LABELS": ",".join(f"k{n}=v" for n in range(65))}, "more than 64"),
    ],
)
def test_wrong_slots_and_labels_are_refused_with_the_rule(
    env: dict[str, str], rule: str | None
) -> None:
    if rule is None:
        assert settings(**env).labels == {"zone": "x"}
        return
    with pytest.raises(ConfigError, match=rule):
        settings(**env)
