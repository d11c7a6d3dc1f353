"""The places of jobs: they follow the pods, and keep room for pods that did not come yet."""

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from queues.placement import kept_nodes
from queues.placement.gangs import Gang, Members, Shape
from queues.placement.places import Places, PodsOnNodes
from tests.support.queues.clusters import room_of, shape

NODE = {"gpu": 8, "pods": 10}
HALF = shape(gpu=4)
TRIPLE = Gang((Members(HALF, 3),), further=HALF)


def bound(*nodes: int, pod: Shape = HALF) -> PodsOnNodes:
    return Counter((node, pod.demand) for node in nodes)


def free(places: Places) -> list[int]:
    return [places.room.free(node)["gpu"] for node in range(len(places.room.names))]


@pytest.fixture
def places() -> Places:
    """Return the places of a gang of three pods on three nodes, of which none is bound."""
    found = Places(room_of([NODE] * 3), room_of([NODE] * 3), lambda *_: None)
    found.take("job", TRIPLE)
    assert free(found) == [0, 4, 8]
    return found


def test_a_bound_pod_takes_its_own_place(places: Places) -> None:
    places.follow("job", bound(0, 1), None, None)
    assert free(places) == [0, 4, 8]


def test_a_pod_that_is_bound_elsewhere_gives_up_one_place(places: Places) -> None:
    places.follow("job", bound(2), None, None)
    assert sum(free(places)) == 12
    assert free(places)[2] == 4


def test_the_place_of_a_pod_that_is_gone_is_kept_for_the_next_one(places: Places) -> None:
    places.follow("job", bound(0, 0, 1), None, None)
    places.follow("job", bound(0, 1), None, None)
    assert free(places) == [0, 4, 8]


def test_a_job_of_several_stages_keeps_no_places_once_it_has_started() -> None:
    places = Places(room_of([NODE] * 3), room_of([NODE] * 3), lambda *_: None)
    staged = Gang(TRIPLE.members, lasting=False)
    places.take("job", staged)
    places.follow("job", bound(0, 0, 1), None, None)
    places.follow("job", bound(1), None, None)
    assert free(places) == [8, 4, 8]


def test_a_growth_takes_further_places_and_a_smaller_job_gives_them_up(places: Places) -> None:
    places.follow("job", bound(0, 0, 1), None, None)
    places.take("job", Gang((Members(HALF, 2),), further=HALF))
    assert sum(free(places)) == 4
    places.follow("job", bound(0, 0, 1), TRIPLE, TRIPLE.members)
    assert free(places) == [0, 4, 8]


def test_a_job_without_a_reservation_has_only_its_pods(places: Places) -> None:
    places.follow("job", bound(1), None, None)
    places.release("job")
    assert free(places) == [8, 4, 8]
    places.follow("job", bound(), None, None)
    assert free(places) == [8, 8, 8]
    assert places.jobs == {}


def test_places_on_nodes_that_take_no_pods_move_to_others(places: Places) -> None:
    places.follow("job", bound(1), None, None)
    places.usable = 0b110
    places.room.set_capacity(0, {})
    assert places.vacate(~places.usable) == ["job"]
    places.follow("job", bound(1), None, None)
    assert free(places)[1:] == [0, 4]


def test_a_copy_changes_nothing(places: Places) -> None:
    copied = places.copy()
    copied.take("other", TRIPLE)
    assert free(copied) == [0, 0, 0]
    assert free(places) == [0, 4, 8]


def test_what_others_may_not_use_before_a_large_job_is_idle_for_it(places: Places) -> None:
    places.kept, places.kept_for = 0b110, ("large", TRIPLE)
    assert kept_nodes.idle(places, {"gpu": 8}) == {"gpu": 8}, "no more than it asks for, of what is free on its nodes"
    places.take("other", Gang((Members(HALF, 1),)))
    places.follow("other", bound(0), None, None)
    assert not places.was_broken
    places.release("job")
    places.take("next", Gang((Members(HALF, 1),)))
    places.follow("next", bound(2), None, None)
    assert places.was_broken
    places.others_wait = True
    assert kept_nodes.idle(places, {"gpu": 8}) == {"gpu": 16}, "all that is free, on whichever nodes"


def test_a_job_that_lost_its_places_gets_others_before_kept_ones(places: Places) -> None:
    places.kept, places.kept_for = 0b010, ("large", TRIPLE)
    places.room.set_capacity(0, {})
    places.vacate(0b001)
    places.follow("job", bound(), None, None)
    assert free(places)[1:] == [4, 0]


PODS = st.lists(st.integers(0, 2), max_size=3)


@given(steps=st.lists(st.tuples(st.sampled_from("ab"), st.sampled_from(["take", "release", "follow"]), PODS)))
def test_what_is_free_is_what_the_nodes_offer_less_all_places(steps: list[tuple[str, str, list[int]]]) -> None:
    places = Places(room_of([NODE] * 3), room_of([NODE] * 3), lambda *_: None)
    for key, step, nodes in steps:
        if step == "take" and key not in places.jobs:
            places.take(key, TRIPLE)
        elif step == "release":
            places.release(key)
        elif step == "follow":
            places.follow(key, bound(*nodes), None, None)
        used = [0, 0, 0]
        for job in places.jobs.values():
            assert job.places() <= job.missing()
            for pods in (job.bound, job.waiting):
                for (node, _), count in pods.items():
                    used[node] += 4 * count
        assert free(places) == [8 - each for each in used]
    for key in "ab":
        places.release(key)
        places.follow(key, bound(), None, None)
    assert free(places) == [8, 8, 8]


def test_take_names_the_nodes_only_if_they_are_wanted() -> None:
    places = Places(room_of([NODE] * 4), room_of([NODE] * 4), lambda *_: None)
    assert places.take("unnamed", TRIPLE) == ""
    places.names_nodes = True
    assert places.take("job", Gang((Members(shape(gpu=2), 1), Members(HALF, 2)), further=HALF)) == "1=n1*1,n2*1 0=n2*1"
    assert places.take("job", Gang((Members(HALF, 1),), further=HALF)) == "1=n3*1"
    assert places.take("other", None) == ""
    assert places.take("large", Gang((Members(HALF, 9),))) == ""
