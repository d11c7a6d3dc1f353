"""The text with the nodes on which the pods of a job were placed."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from queues.placement import pod_nodes
from tests.support.queues.clusters import shape

NAMES = ["n0", "n1", "n2"]
KINDS = [shape(gpu=1), shape(gpu=4), shape(cpu=2)]


def test_text_has_a_group_for_each_kind_of_pods_in_the_order_of_nodes() -> None:
    placed = [(2, KINDS[1], 1), (0, KINDS[1], 3), (1, KINDS[0], 1)]
    text = pod_nodes.write(placed, KINDS, NAMES)
    assert text == "1=n2*1,n0*3 0=n1*1"
    assert pod_nodes.read(text) == {1: ["n2", "n0", "n0", "n0"], 0: ["n1"]}


placements = st.lists(st.tuples(st.integers(0, 2), st.sampled_from(KINDS), st.integers(1, 5)))


@given(placements, placements)
def test_growths_are_read_after_what_was_placed_before(
    before: list[tuple[int, pod_nodes.Shape, int]], growth: list[tuple[int, pod_nodes.Shape, int]]
) -> None:
    both = pod_nodes.extend(pod_nodes.write(before, KINDS, NAMES), pod_nodes.write(growth, KINDS, NAMES))
    for number, kind in enumerate(KINDS):
        placed = [*before, *growth] if before else []
        expected = [NAMES[node] for node, pod, count in placed if pod == kind for _ in range(count)]
        assert pod_nodes.read(both).get(number, []) == expected


def test_domain_stays_whatever_becomes_of_the_nodes() -> None:
    domain = pod_nodes.domain_of("example.org/rack", "r1")
    text = pod_nodes.write([(0, KINDS[0], 1)], KINDS, NAMES, domain)
    assert text == "in:example.org/rack=r1 0=n0*1"
    assert (pod_nodes.domain(text), pod_nodes.read(text)) == (domain, {0: ["n0"]})
    names = [f"node-{number:03}.example.org" for number in range(200)]
    alone = pod_nodes.write([(number, KINDS[0], 1) for number in range(200)], KINDS, names, domain)
    assert (pod_nodes.domain(alone), pod_nodes.read(alone)) == (domain, {})
    assert pod_nodes.extend(alone, "0=n1*1") == alone
    assert pod_nodes.extend(text, "0=" + "n1," * 1000) == alone
    assert pod_nodes.is_in(text, "example.org/rack")
    assert not pod_nodes.is_in(text, "example.org/block")


@pytest.mark.parametrize(("before", "more", "both"), [("", "0=n1*1", ""), ("0=n0*1", "", "0=n0*1"), ("", "", "")])
def test_places_of_a_growth_alone_are_not_kept(before: str, more: str, both: str) -> None:
    assert pod_nodes.extend(before, more) == both


def test_a_text_that_is_too_long_is_not_kept() -> None:
    names = [f"node-{number:03}.example.org" for number in range(200)]
    text = pod_nodes.write([(number, KINDS[0], 1) for number in range(85)], KINDS, names)
    assert 1_700 < len(text) <= pod_nodes.MOST_LENGTH
    assert pod_nodes.write([(number, KINDS[0], 1) for number in range(200)], KINDS, names) == ""
    assert pod_nodes.extend(text, text) == ""
