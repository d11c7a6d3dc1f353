"""Nodes that flap, that nobody knows, and places that are made anew while others read a copy; the test plays the
watches."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import cast

import pytest

from coordinator.cache.node_changes import TURN_SECONDS, SecondLooks
from coordinator.cache.watches import Watches
from coordinator.cache.worker_counts import WorkerCounts
from coordinator.leader.node_places import NodePlaces
from crds.keys import JobKey
from crds.node_requirements import Taint, place_condition
from queues.placement.gangs import Gang, Members, Shape
from queues.values import Reservation
from tests.support.clock import Clock
from tests.support.coordinator.builders import KEY, admission, job, node, pod
from tests.support.coordinator.shown_nodes import Nodes, Pods, Shown

POD = Shape((("cpu", 1000), ("pods", 1)))
GANG = Gang((Members(POD, 1),))


@pytest.fixture
def shown() -> Shown:
    """Return watches that show two nodes."""
    return Shown(Nodes({name: node(name=name, labels={"name": name}) for name in ("n1", "n2")}), Pods())


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def kept(shown: Shown, clock: Clock) -> NodePlaces:
    found = NodePlaces(cast("Watches", shown), reserved(), clock)
    assert found.refresh()
    return found


def reserved(**size: int) -> Callable[..., dict[JobKey, Reservation]]:
    """Return what reads a store with one reservation, of some workers; without a size, with none."""
    held = {KEY: Reservation(key=KEY, queue="a", attempt=1, epoch=1, charge={}, **size)} if size else {}

    def read(keys: Sequence[JobKey] | None = None) -> dict[JobKey, Reservation]:
        return {key: each for key, each in held.items() if keys is None or key in keys}

    return read


def where(name: str) -> Gang:
    return Gang((Members(Shape(POD.demand, place_condition({"nodeSelector": {"name": name}})), 1),))


def test_pods_on_nodes_that_nobody_knows_call_for_no_other_look_at_jobs(shown: Shown, kept: NodePlaces) -> None:
    for number in range(2):
        shown.add_pod(pod(name=f"ghost-{number}", job=None, node=f"ghost-{number}"))
        assert not kept.refresh()
    shown.set_node("ghost-0", allocatable={"cpu": 1000, "pods": 1})
    assert kept.refresh()
    assert kept.places is not None
    assert kept.places.room.total(POD) == 16, "the pod of the node that came back is counted"


def test_a_node_that_flaps_calls_for_no_other_look_at_jobs(shown: Shown, kept: NodePlaces) -> None:
    assert kept.places is not None
    for ready in (False, True):
        down = Taint("node.kubernetes.io/not-ready", "", "NoExecute")
        shown.set_node("n1", ready=ready, taints=() if ready else (down,))
        assert not kept.refresh()
        assert kept.places.fits(where("n1")) == ready
    shown.set_node("n1", taints=(Taint("mine", "", "NoSchedule"),))
    assert kept.refresh()
    assert not kept.places.fits(where("n1"))


def test_a_copy_means_the_same_nodes_after_the_places_were_made_anew(shown: Shown, kept: NodePlaces) -> None:
    copied = kept.copy()
    assert copied is not None
    shown.nodes.found = dict(reversed(shown.nodes.found.items()))
    kept.forget()
    assert copied.fits(where("n1")), "while nothing is known"
    kept.refresh()
    copied.room.use(copied.room.index("n1"), POD.demand, 8)
    assert not copied.fits(where("n1"))
    assert copied.fits(where("n2"))


def test_places_that_could_not_be_made_whole_are_made_anew_at_once(
    shown: Shown, kept: NodePlaces, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = kept.places
    assert before is not None
    before.is_outdated = True
    with monkeypatch.context() as broken:
        broken.setattr(Pods, "values", lambda _: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            kept.refresh()
    assert kept.places is before
    assert kept.refresh()
    assert kept.places is not before


def test_no_change_is_lost_while_the_store_does_not_answer(
    shown: Shown, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    shown.jobs[KEY] = job(gang=GANG, admission=admission())
    shown.add_pod(pod(name="first", node="n1", demand=dict(POD.demand)))
    kept = NodePlaces(cast("Watches", shown), reserved(size=0), clock)
    for _ in range(2):
        kept.refresh()
        clock.step(1.0)
    shown.add_pod(pod(name="other", job=None, node="n2", demand=dict(POD.demand)))
    shown.add_pod(pod(name="second", node="n2", demand=dict(POD.demand)))
    clock.step(TURN_SECONDS)
    with monkeypatch.context() as broken:
        broken.setattr(kept, "reservations", lambda _: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            kept.refresh()
    kept.refresh()
    assert kept.places is not None
    assert kept.places.room.total(POD) == 13


def test_places_of_the_first_stage_do_not_come_back_in_a_later_one(shown: Shown, clock: Clock) -> None:
    staged = Gang((Members(POD, 6),), lasting=False)
    shown.jobs[KEY] = job(gang=staged, admission=admission())
    kept = NodePlaces(cast("Watches", shown), reserved(size=0), clock)
    kept.refresh()
    first = [pod(name=f"first-{number}", node="n1", demand=dict(POD.demand)) for number in range(6)]
    for each in first:
        shown.add_pod(each)
    kept.refresh()
    for each in first:
        shown.end_pod(each)
    shown.add_pod(replace(first[0], name="second"))
    for _ in range(2):
        kept.refresh()
        assert kept.places is not None
        assert kept.places.room.total(POD) == 15
        clock.step(TURN_SECONDS)


@pytest.mark.parametrize(("is_past_first", "left"), [(True, 15), (False, 10)])
def test_a_new_leader_keeps_no_places_of_the_first_stage_once_a_later_one_runs(
    shown: Shown, clock: Clock, is_past_first: bool, left: int
) -> None:
    staged = Gang((Members(POD, 6),), lasting=False)
    shown.jobs[KEY] = job(gang=staged, admission=admission(), is_past_first=is_past_first)
    shown.add_pod(pod(node="n1", demand=dict(POD.demand)))
    kept = NodePlaces(cast("Watches", shown), reserved(size=0), clock)
    kept.refresh()
    assert kept.places is not None
    assert kept.places.room.total(POD) == left


def test_a_job_that_lost_its_places_gets_others_once_there_is_room(shown: Shown, clock: Clock) -> None:
    shown.jobs[KEY] = job(gang=Gang((Members(POD, 6),)), admission=admission())
    kept = NodePlaces(cast("Watches", shown), reserved(size=0), clock)
    kept.refresh()
    for name in ("n1", "n2"):
        shown.set_node(name, ready=False)
        kept.refresh()
    assert kept.places is not None
    shown.set_node("n3", allocatable={"cpu": 8000, "pods": 10})
    kept.refresh()
    assert kept.places.room.total(POD) == 2


def test_a_growth_keeps_its_places_until_the_admission_shows_it(shown: Shown, clock: Clock) -> None:
    growing = Gang((Members(POD, 2),), further=POD)
    workers = WorkerCounts(least=2, wanted=5, step=1, least_charge={}, share={})
    shown.jobs[KEY] = job(gang=growing, admission=admission(workers=2), workers=workers)
    kept = NodePlaces(cast("Watches", shown), reserved(size=2), clock)
    kept.refresh()
    assert kept.places is not None
    kept.places.take(str(KEY), Gang((Members(POD, 3),), further=POD))
    kept.reservations = reserved(size=5)
    shown.add_pod(pod(node="n1", demand=dict(POD.demand)))
    kept.refresh()
    assert kept.places.room.total(POD) == 11
    shown.set_job(admission=admission(workers=5))
    shown.set_job(admission=admission(workers=3))
    kept.refresh()
    assert kept.places.room.total(POD) == 11, "the charge is freed last"
    kept.reservations = reserved(size=3)
    shown.node_changes.note_charges([KEY])
    kept.refresh()
    assert kept.places.room.total(POD) == 13


def test_second_looks_are_short_and_come_to_everything_within_a_turn() -> None:
    looks, everything = SecondLooks(0.0), [f"n{number}" for number in range(2_000)]
    seen: list[str] = []
    for second in range(2 * round(TURN_SECONDS)):
        due = looks.take(float(second), lambda: (len(everything), iter(everything))).nodes
        assert len(due) <= 7
        seen += due
    assert {*seen} == {*everything}
    assert 7 < len(looks.take(1e6, lambda: (0, iter(()))).nodes) <= 256, "after a long pause"
