"""Which node may have which task: pure."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flashruntime.leases.placement import (
    ANY_NODE,
    Offer,
    fits,
    missing,
    need_of,
    offer_of,
    ordered,
)
from flashruntime.protocol.nodes import NodeDuty, NodeOrder
from flashruntime.protocol.placement import (
    NodeCapabilities,
    PlacedParameters,
    Resources,
    capabilities_of,
)

LABELS = st.dictionaries(st.sampled_from(["zone", "disk", "a/b"]), st.sampled_from(["x", "y", ""]))
RESOURCES = st.builds(
    Resources,
    cpus=st.sampled_from([0, 0.5, 1, 4]),
    memory_bytes=st.sampled_from([0, 1, 2**33]),
    accelerators=st.integers(0, 3),
)
ASKED = st.builds(PlacedParameters, resources=RESOURCES, node_selector=LABELS)


@settings(max_examples=50)
@given(ASKED, ASKED)
def test_equal_demands_and_only_they_have_one_need(
    one: PlacedParameters, other: PlacedParameters
) -> None:
    assert (need_of(one) == need_of(other)) == (one == other)


@settings(max_examples=50)
@given(ASKED, RESOURCES, LABELS)
def test_a_node_takes_what_it_covers_and_nothing_else(
    asked: PlacedParameters, has: Resources, labels: dict[str, str]
) -> None:
    covered = all(value <= dict(has)[name] for name, value in asked.resources)
    labelled = asked.node_selector.items() <= labels.items()
    assert fits(need_of(asked), Offer(has, labels)) == (covered and labelled)


@settings(max_examples=50)
@given(RESOURCES, LABELS)
def test_a_task_that_asks_for_nothing_goes_anywhere(has: Resources, labels: dict[str, str]) -> None:
    assert need_of(PlacedParameters()) == ANY_NODE
    assert fits(ANY_NODE, Offer(has, labels))


def test_what_a_node_says_is_free_counts_and_not_what_it_has() -> None:
    declared = NodeCapabilities(cpus=4, labels={"zone": "x"})
    need = need_of(PlacedParameters(resources=Resources(cpus=2), node_selector={"zone": "x"}))
    assert fits(need, offer_of(declared))
    assert not fits(need, offer_of(declared, Resources(cpus=1.5)))


@pytest.mark.parametrize("declared", [None, "text", {"cpus": "many"}, {"labels": {"a b": "c"}}, []])
def test_capabilities_that_cannot_be_read_offer_nothing(declared: object) -> None:
    assert capabilities_of(declared) == NodeCapabilities()


def test_it_is_said_whether_no_node_or_only_a_closed_one_offers_what_is_asked() -> None:
    need = need_of(PlacedParameters(resources=Resources(accelerators=2)))
    two = {"gpu": Offer(Resources(accelerators=2))}
    assert missing(need, two, {}) is None
    assert missing(need, {}, two) == (
        "no open node offers accelerators=2; gpu does and is cordoned or drained"
    )
    assert missing(need, {"cpu": Offer(Resources())}, {}) == (
        "no node offers accelerators=2 (1 node known); add one, or ask for less"
    )


def test_an_order_that_is_repeated_changes_nothing() -> None:
    for order in NodeOrder:
        for duty in NodeDuty:
            once = ordered(duty, order)
            assert ordered(once, order) is once
    assert ordered(NodeDuty.DRAINED, NodeOrder.CORDON) is NodeDuty.DRAINED
    assert ordered(NodeDuty.DRAINED, NodeOrder.UNCORDON) is NodeDuty.ACTIVE
