"""The pods that are placed together, and further workers of an elastic job among them."""

from dataclasses import replace

from queues.placement.gangs import Gang, Members
from tests.support.queues.clusters import shape

MASTER, WORKER = shape(cpu=1), shape(gpu=1)
MEMBERS = Members(MASTER, 1), Members(WORKER, 2)


def test_equal_pods_are_of_one_shape() -> None:
    assert shape(cpu=1) == MASTER
    assert hash(shape(cpu=1)) == hash(MASTER)
    assert replace(MASTER, where="rack") != MASTER
    assert len({MASTER, shape(cpu=1), WORKER, replace(MASTER, where="rack")}) == 3


def test_further_workers_join_those_of_their_shape() -> None:
    gang = Gang(MEMBERS, further=WORKER)
    assert gang.with_further(3) == (Members(MASTER, 1), Members(WORKER, 5))
    assert gang.with_further(0) == MEMBERS


def test_further_workers_of_another_shape_are_members_of_their_own() -> None:
    other = shape("spot", gpu=1)
    assert Gang(MEMBERS, further=other).with_further(2) == (*MEMBERS, Members(other, 2))


def test_a_job_that_does_not_grow_has_no_further_workers() -> None:
    assert Gang(MEMBERS).with_further(2) == MEMBERS


def test_gangs_are_told_apart_by_identity() -> None:
    assert Gang(MEMBERS) != Gang(MEMBERS)
