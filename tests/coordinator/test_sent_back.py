"""Jobs that were admitted and wait again: their room is free for others, and theirs again when their time comes."""

import pytest

from coordinator.term import Unaccounted
from crds.keys import JobKey
from tests.coordinator.desk import Desk
from tests.coordinator.test_term import admit, make_pod, seen


def both_admitted(desk: Desk, namespace: str) -> tuple[JobKey, JobKey]:
    """Two admissions where there is room for one, as after a loss in the wrong moment."""
    desk.queue("a", quota={"jobs": 1})
    older, newer = desk.submit("older", namespace, "a"), desk.submit("newer", namespace, "a")
    seen(desk, newer)
    admit(desk, older, epoch=1)
    admit(desk, newer, epoch=2, port=20_008)
    return older, newer


def test_an_admission_without_room_and_pods_is_taken_back_the_newest_first(desk: Desk, namespace: str) -> None:
    older, newer = both_admitted(desk, namespace)
    desk.begin(3)
    assert desk.held() == {older}
    assert desk.term.audit()
    desk.until(lambda: desk.phase(newer) == "Queued" and desk.waiting() == {newer})
    assert desk.job(newer).admission is None
    assert len(desk.pods_of(older)) == 2
    assert not desk.pods_of(newer)
    desk.change(older, suspend=True)
    desk.until(lambda: len(desk.pods_of(newer)) == 2)
    assert desk.job(newer).status.attempt == 2


def test_an_admission_with_a_pod_stays_and_so_does_what_the_store_charged(desk: Desk, namespace: str) -> None:
    _, newer = both_admitted(desk, namespace)
    make_pod(desk, newer, "newer-master-0")
    desk.begin(3)
    assert desk.held() == {newer}
    assert desk.term.audit()


def test_an_admission_that_comes_to_light_later_is_taken_back_if_its_room_is_gone(desk: Desk, namespace: str) -> None:
    desk.queue("a", quota={"jobs": 1})
    desk.begin()
    first = desk.submit("first", namespace, "a")
    desk.until(lambda: desk.held() == {first}, worker=False)
    late = desk.submit("late", namespace, "a")
    desk.until(lambda: desk.waiting() == {late}, worker=False)
    admit(desk, late, epoch=1, port=20_055)
    with pytest.raises(Unaccounted):
        desk.until(lambda: False)
    desk.begin(2)
    desk.until(lambda: desk.phase(late) == "Queued" and desk.waiting() == {late})
    assert desk.held() == {first}
