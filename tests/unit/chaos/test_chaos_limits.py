"""Volumes of limited size: who has them, and that the composition knows them all."""

import json

import pytest

from chaos import registry
from chaos.model import JobRequest
from chaos.ports.disks import Volume
from chaos.schedule import Draw, make_plan
from chaos.targets.stack import FILES, LIMITED, ROOT, Project

CLOSING = {"fill_disk", "read_only"}


def test_a_run_has_its_volumes_on_the_disk_unless_it_says_otherwise() -> None:
    assert Project("run-1", 2, {})._files == FILES
    limited = Project("run-1", 2, {}, {"ledger": 8})
    assert limited._files == (*FILES, LIMITED)
    assert limited._variables["FLASHML_LEDGER_MIB"] == "8"


@pytest.mark.parametrize("volume", Volume)
def test_the_composition_limits_each_volume_by_its_variable(volume: Volume) -> None:
    text = (ROOT / LIMITED).read_text(encoding="utf-8")
    assert f"\n  {volume}:\n" in text
    assert f"size=${{FLASHML_{volume.upper()}_MIB:-" in text


def test_every_experiment_that_closes_a_volume_brings_one_that_can_be_closed() -> None:
    for experiment in registry.experiments():
        schedule = experiment.faults(Draw(1, experiment.count))
        closed = {str(a.params["volume"]) for a in schedule if a.kind in CLOSING}
        assert closed <= set(experiment.limits_mib), experiment.name
        assert set(experiment.limits_mib) <= {each.value for each in Volume}


def test_a_plan_states_the_limits() -> None:
    experiment = registry.experiment("disk_full_commit")
    plan = make_plan(experiment, 1, 2, {"main": JobRequest("m", ("true",))}, images={})
    assert json.loads(plan.to_bytes())["limits_mib"] == dict(experiment.limits_mib)
