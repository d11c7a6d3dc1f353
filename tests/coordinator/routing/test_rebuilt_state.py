"""Which jobs a rebuild charges, and which jobs it puts into the order."""

from dataclasses import replace
from typing import Any

from coordinator.cache.routing_rules import RoutingRules
from coordinator.routing import rebuilt_state
from coordinator.routing.rebuilt_state import RebuiltState
from crds.keys import JobKey
from queues.values import Reservation
from tests.support.coordinator.builders import KEY, admission, job, pod


def take(jobs: Any, pods: Any, held: Any, rules: RoutingRules = RoutingRules()) -> RebuiltState:  # noqa: B008
    return rebuilt_state.compute(jobs, pods, held, rules, now=1000.0)


HELD = Reservation(key=KEY, queue="a", attempt=1, epoch=3, charge={"cpu": 2000, "jobs": 1}, port=20_009)
ADMITTED = Reservation(key=KEY, queue="a", attempt=1, epoch=3, charge={"cpu": 2000, "jobs": 1}, port=20_001)


def test_an_admitted_job_gets_the_charge_in_its_status() -> None:
    found = take([job(admission=admission(), attempt=1)], [], {})
    assert (found.reservations, found.entries) == ((ADMITTED,), ())


def test_an_admitted_job_keeps_the_nodes_of_its_pick() -> None:
    placed = replace(HELD, nodes="0=n1*1")
    assert take([job(admission=admission(), attempt=1)], [], {KEY: placed}).reservations[0].nodes == "0=n1*1"
    again = take([job(admission=admission(), attempt=1)], [], {KEY: replace(placed, attempt=0)})
    assert again.reservations[0].nodes == ""


def test_a_waiting_job_gets_an_entry_in_the_order() -> None:
    found = take([job()], [], {})
    assert found.reservations == ()
    assert [entry.key for entry in found.entries] == [KEY]


def test_a_pick_without_a_written_admission_is_kept() -> None:
    assert take([job()], [], {KEY: HELD}).reservations == (HELD,)


def test_a_pick_of_a_finished_attempt_is_dropped() -> None:
    assert take([job(attempt=1)], [], {KEY: HELD}).reservations == ()


def test_a_finished_job_is_charged_while_a_pod_occupies_room() -> None:
    ended = job(finished=True, admission=admission())
    assert take([ended], [pod()], {}).reservations == (ADMITTED,)
    assert take([ended], [pod(occupies=False)], {}) == RebuiltState((), ())


def test_pods_of_a_deleted_job_are_charged_for_their_requests() -> None:
    found = take([], [pod(attempt=2), pod(name="train-worker-0", attempt=2)], {})
    assert found.reservations == (Reservation(key=KEY, queue="a", attempt=2, epoch=0, charge={"cpu": 2000, "jobs": 1}),)


def test_suspended_cancelled_deleting_invalid_and_finished_jobs_do_not_wait() -> None:
    for state in (job(suspended=True), job(cancelled=True), job(deleting=True), job(invalid=True), job(finished=True)):
        assert take([state], [], {}) == RebuiltState((), ())


def test_foreign_pods_are_not_charged_to_any_job() -> None:
    assert take([], [pod(job=None)], {}).reservations == ()


def test_a_waiting_job_does_not_share_the_charge_of_another_job() -> None:
    other = JobKey("team", "other", "u2")
    found = take([job(admission=admission()), job(key=other)], [pod()], {})
    assert {reservation.key for reservation in found.reservations} == {KEY}
    assert [entry.key for entry in found.entries] == [other]
