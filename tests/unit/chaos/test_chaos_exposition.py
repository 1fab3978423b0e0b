"""What CI reads of a run: metrics in Prometheus' format, verdict.json by its schema."""

import json
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import jsonschema
import pytest
from prometheus_client.parser import text_string_to_metric_families

import chaos
from chaos import registry
from chaos.exposition import BUCKETS_S, FAMILIES, exposition, measured
from chaos.history import History
from chaos.judge import Judgement, invariants_of, judge
from chaos.testing.story import Fate, Story

SCHEMA = json.loads((Path(chaos.__file__).parent / "verdict.schema.json").read_text("utf-8"))
Samples = dict[tuple[str, frozenset[tuple[str, str]]], float]


@pytest.fixture(scope="module")
def history() -> History:
    jobs = {"main": [Fate.KILLED, Fate.ZOMBIE], "second": [Fate.CRASHED]}
    return History(Story(Random(5), jobs).records)


@pytest.fixture(scope="module")
def judgement(history: History) -> Judgement:
    return judge(history, registry.invariants(invariants_of(history)))


def parsed(text: str) -> Samples:
    """Read the text as Prometheus would; a sample may not appear twice."""
    samples: Samples = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            key = (sample.name, frozenset(sample.labels.items()))
            assert key not in samples
            samples[key] = sample.value
    return samples


def labelled(samples: Samples, name: str, **labels: str) -> float:
    return next(
        value
        for (sample, own), value in samples.items()
        if sample == name and set(labels.items()) <= own
    )


def test_a_run_is_told_by_the_documented_names(judgement: Judgement, history: History) -> None:
    text = exposition([measured(judgement, history)])
    samples = parsed(text)
    told = {family.name for family in text_string_to_metric_families(text)}
    assert told == set(FAMILIES) - {"chaos_run_timestamp_seconds"}, "a story has no wall time"
    assert labelled(samples, "chaos_run_verdict", verdict="valid") == 1
    assert labelled(samples, "chaos_run_verdict", verdict="violated") == 0
    assert labelled(samples, "chaos_run_faults", landed="landed") == len(judgement.faults)
    assert labelled(samples, "chaos_run_left_objects", kind="volumes") == 0
    assert labelled(samples, "chaos_run_wall_seconds") > 0
    goodput = judgement.figures["goodput"]
    assert labelled(samples, "chaos_run_goodput_ratio") == goodput


def test_times_are_histograms_whose_buckets_only_grow(
    judgement: Judgement, history: History
) -> None:
    seconds = [0.05, 0.25, 7.0, 500.0]
    slow = replace(judgement, figures={**judgement.figures, "mttd_s": [*seconds]})
    samples = parsed(exposition([measured(slow, history)]))
    name = "chaos_run_mttd_seconds"
    counts = [labelled(samples, f"{name}_bucket", le=f"{bound:g}") for bound in BUCKETS_S]
    assert counts == sorted(counts)
    assert labelled(samples, f"{name}_bucket", le="0.25") == 2
    assert labelled(samples, f"{name}_bucket", le="+Inf") == 4
    assert labelled(samples, f"{name}_count") == 4
    assert labelled(samples, f"{name}_sum") == pytest.approx(sum(seconds))


def test_several_runs_share_their_families(judgement: Judgement, history: History) -> None:
    runs = [measured(replace(judgement, seed=seed), history) for seed in (1, 2)]
    text = exposition(runs)
    assert text.count("# TYPE chaos_run_verdict gauge") == 1
    assert labelled(parsed(text), "chaos_run_verdict", verdict="valid", seed="2") == 1


@pytest.mark.parametrize("name", ['a"b\\c\nd', "ein\u2028\x00\ud800", ""])
def test_any_name_survives_as_a_label(judgement: Judgement, history: History, name: str) -> None:
    text = exposition([measured(replace(judgement, experiment=name), history)])
    text.encode("utf-8")
    labels = {dict(own)["experiment"] for _, own in parsed(text)}
    assert labels == {name.replace("\ud800", "?")}


def test_a_figure_that_was_not_measured_has_no_sample(
    judgement: Judgement, history: History
) -> None:
    bare = replace(judgement, figures={}, clean=dict.fromkeys(judgement.clean))
    told = {name for name, _ in parsed(exposition([measured(bare, history)]))}
    assert not {"chaos_run_goodput_ratio", "chaos_run_left_objects"} & told
    assert "chaos_run_mttd_seconds_count" in told


def test_a_verdict_obeys_its_schema(judgement: Judgement) -> None:
    jsonschema.Draft202012Validator.check_schema(SCHEMA)
    verdict = json.loads(json.dumps(judgement.to_json()))
    jsonschema.validate(verdict, SCHEMA)
    assert verdict["figures"]["mttd_s"]
    assert verdict["figures"]["mttr_s"]


@pytest.mark.parametrize("kept", [1, 3, 30])
def test_the_verdict_of_a_run_that_stopped_early_obeys_it_too(history: History, kept: int) -> None:
    beginning = History(history.records[: kept + 1])
    found = judge(beginning, registry.invariants(invariants_of(beginning)))
    jsonschema.validate(json.loads(json.dumps(found.to_json())), SCHEMA)


@pytest.mark.parametrize(
    "wrong",
    [{"verdict": "passed"}, {"schema": "chaos_v2"}, {"faults": [{"id": "f"}]}, {"more": 1}],
)
def test_the_schema_refuses_what_is_no_verdict(judgement: Judgement, wrong: dict[str, Any]) -> None:
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate({**json.loads(json.dumps(judgement.to_json())), **wrong}, SCHEMA)
