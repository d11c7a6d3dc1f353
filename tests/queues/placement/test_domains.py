"""In which domain a gang runs, compared with an exhaustive search over the domains of small clusters."""

from itertools import combinations
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from queues.picking import node_words
from queues.placement import domains
from queues.placement.gangs import EVERY, Gang, Members, NodeSet
from queues.placement.node_room import NodeRoom, bits
from queues.placement.places import Places
from tests.support.queues.clusters import Cluster, cluster_by_chance, shape

RACK = "rack"
GPU = shape(gpu=8)


def room_of(nodes: list[dict[str, int]], racks: dict[str, NodeSet]) -> NodeRoom:
    room = NodeRoom(lambda _: (1 << len(nodes)) - 1, lambda label: racks if label == RACK else {})
    for number, node in enumerate(nodes):
        room.set_capacity(room.index(f"n{number}"), node)
    return room


def gpu_racks(*free: int) -> NodeRoom:
    """Return racks with some free nodes of 8 GPUs each."""
    first = [sum(free[:number]) for number in range(len(free))]
    racks = {f"r{number}": (1 << first[number] + count) - (1 << first[number]) for number, count in enumerate(free)}
    return room_of([{"gpu": 8, "pods": 10}] * sum(free), racks)


def chosen(room: NodeRoom, pods: int, within: NodeSet = EVERY) -> str:
    gang = Gang((Members(GPU, pods),), required=RACK)
    found = domains.choose(room, room, gang, gang.members, within)
    return found.value if found is not None else ""


@pytest.mark.parametrize(
    ("free", "pods", "rack"),
    [((4, 2, 3), 2, "r1"), ((4, 2, 3), 3, "r2"), ((4, 2, 3), 4, "r0"), ((4, 2, 3), 5, ""), ((), 1, "")],
)
def test_required_domain_is_the_fullest_that_holds_the_gang(free: tuple[int, ...], pods: int, rack: str) -> None:
    assert chosen(gpu_racks(*free), pods) == rack


def test_nodes_outside_of_the_set_do_not_count() -> None:
    assert chosen(gpu_racks(2, 3), 2, ~0b00001) == "r1"
    assert chosen(gpu_racks(2, 3), 3, ~0b10000) == ""


def test_domain_has_to_hold_the_later_stages_when_it_is_empty() -> None:
    room, empty = gpu_racks(2, 3), gpu_racks(2, 3)
    gang = Gang((Members(GPU, 1),), required=RACK, later=((Members(GPU, 3),),))
    found = domains.choose(room, empty, gang, gang.members)
    assert found is not None
    assert found.value == "r1"


@pytest.mark.parametrize(
    ("free", "pods", "nodes"),
    [
        ((4, 2, 3), 2, [4, 5]),  # the fullest rack that holds both
        ((4, 2, 3), 6, [0, 1, 2, 3, 4, 5]),  # the largest, and of the others the fullest that holds the rest
        ((4, 2, 3), 7, [0, 1, 2, 3, 6, 7, 8]),
    ],
)
def test_preferred_domains_are_as_few_as_can_be(free: tuple[int, ...], pods: int, nodes: list[int]) -> None:
    members = (Members(GPU, pods),)
    placed = domains.assign(gpu_racks(*free), Gang(members, preferred=RACK), members, EVERY)
    assert sorted(node for node, _, _ in placed) == nodes


@pytest.mark.parametrize(
    ("free", "words"),
    [
        ((2, 3), "r1 has room for 3, r0 for 2"),
        ((2, 3, 0, 1, 1), "r1 has room for 3, r0 for 2, r3 for 1 (the most of 5)"),
        ((), "no node has this label"),
    ],
)
def test_domains_with_most_room_are_named(free: tuple[int, ...], words: str) -> None:
    members, room = (Members(GPU, 4),), gpu_racks(*free)
    found = domains.count_placed(room, RACK, members, EVERY)
    told = node_words.shared(members, RACK, found, len(room.domains(RACK)))
    assert told == f"its 4 pods (8 gpu each) must share one rack; {words}"


def test_growth_goes_to_the_domain_that_the_job_prefers_and_has() -> None:
    members = (Members(GPU, 1),)
    placed = domains.assign(gpu_racks(4, 2), Gang(members, preferred=RACK), members, EVERY, own=0b1)
    assert [node < 4 for node, _, _ in placed] == [True]


def test_places_of_a_gang_are_in_its_domain_and_the_shapes_name_it() -> None:
    places = Places(
        gpu_racks(4, 2), gpu_racks(4, 2), lambda *_: None, settle=lambda one, domain: shape(domain, **dict(one.demand))
    )
    gang = Gang((Members(GPU, 2),), further=GPU, required=RACK)
    assert places.take("job", gang) == "in:rack=r1"
    assert [one.where for one, _ in places.jobs["job"].members] == ["rack=r1"]
    assert not places.fits(Gang((Members(GPU, 5),), required=RACK))
    assert places.fits(Gang((Members(GPU, 4),), required=RACK))


def racks_of(cluster: Cluster, chance: Random) -> dict[str, NodeSet]:
    """Return the racks of the nodes; some nodes have none."""
    found: dict[str, NodeSet] = {}
    for node in range(len(cluster.nodes)):
        if rack := chance.choice(("", "r1", "r1", "r2", "r3")):
            found[rack] = found.get(rack, 0) | 1 << node
    return found


def holds(cluster: Cluster, nodes: NodeSet) -> bool:
    """Return whether some nodes hold the gang, by the exhaustive search of the clusters."""
    inside = frozenset(bits(nodes))
    allowed = {where: known & inside for where, known in cluster.allowed.items()}
    return Cluster(cluster.nodes, allowed, cluster.members).has_assignment()


@given(st.integers(0, 2**32))
def test_required_and_preferred_are_decided_as_by_an_exhaustive_search(seed: int) -> None:
    chance = Random(seed)
    cluster = cluster_by_chance(chance)
    racks = racks_of(cluster, chance)
    made = cluster.room
    room = NodeRoom(made.allowed, lambda _: racks)
    for number, node in enumerate(cluster.nodes):
        room.set_capacity(room.index(f"n{number}"), node)
    gang = Gang(cluster.members, required=RACK)
    found = domains.choose(room, room, gang, cluster.members)
    holding = {rack for rack, nodes in racks.items() if holds(cluster, nodes)}
    assert (found is not None) == bool(holding)
    assert found is None or found.value in holding
    placed = domains.assign(room, Gang(cluster.members, preferred=RACK), cluster.members, EVERY)
    sets = (chosen for number in range(1, len(racks) + 1) for chosen in combinations(racks.values(), number))
    fewest = next((len(chosen) for chosen in sets if holds(cluster, sum(chosen))), None)
    assert bool(placed) == holds(cluster, EVERY & (1 << len(cluster.nodes)) - 1)
    used = {rack for rack, nodes in racks.items() if any(nodes >> node & 1 for node, _, _ in placed)}
    assert fewest is None or len(used) <= fewest
