"""Leader election: the Lease is on an API server, and the test steps the clock of every candidate."""

import logging
from collections.abc import Callable

import pytest

from coordinator import release
from coordinator.errors import LeadershipLost
from coordinator.leader import election
from coordinator.leader.election import (
    EPOCH_ANNOTATION,
    FIT,
    LAYOUT_ANNOTATION,
    VERSION_ANNOTATION,
    Fitness,
    LeaderElection,
    LeaseConfig,
    ObservedLease,
)
from coordinator.rbac.permissions import LEASE
from crds.api_resources import LEASES
from kube import errors
from kube.client import KubernetesCluster
from queues import redis_keys
from tests.support.coordinator.desk import Clock
from tests.support.waiting import SECONDS as WAITED
from tests.support.waiting import until

SECONDS = 15.0
DEADLINE = 10.0


def candidate(
    cluster: object,
    namespace: str,
    name: str,
    clock: Callable[[], float],
    renew: float = 2.0,
    fitness: Fitness = FIT,
    seconds: float = SECONDS,
) -> LeaderElection:
    return LeaderElection(
        cluster,
        LeaseConfig(name, namespace, seconds, renew_deadline=seconds * 2 / 3, renew_seconds=renew),
        fitness=fitness,
        clock=clock,
    )


def stored(cluster: KubernetesCluster, namespace: str) -> tuple[str, int]:
    """Return holder and epoch from the Lease on the API server."""
    lease = cluster.get(LEASES, LEASE, namespace)
    return lease["spec"].get("holderIdentity", ""), int(lease["metadata"]["annotations"][EPOCH_ANNOTATION])


@pytest.mark.parametrize(
    ("holder", "at", "now", "may"),
    [
        ("", 100.0, 100.0, True),
        ("me", 100.0, 500.0, True),
        ("other", 100.0, 99.9 + SECONDS, False),
        ("other", 100.0, 100.0 + SECONDS, True),
    ],
)
def test_a_lease_may_be_taken_if_it_is_free_expired_or_held_by_the_candidate(
    holder: str, at: float, now: float, may: bool
) -> None:
    assert (
        election.may_take(ObservedLease(holder, "then", at), LeaseConfig("me", "", SECONDS, DEADLINE, 2.0), now) is may
    )


def test_a_free_lease_is_taken_and_kept_in_one_term(cluster: KubernetesCluster, namespace: str, clock: Clock) -> None:
    one = candidate(cluster, namespace, "one", clock)
    assert not one.leading
    one.step()
    assert (one.leading, one.epoch, one.holder) == (True, 1, "one")
    for _ in range(10):
        clock.step(DEADLINE - 1)
        assert one.leading
        one.step()
    assert (one.leading, one.epoch) == (True, 1)
    assert stored(cluster, namespace) == ("one", 1)
    notes = cluster.get(LEASES, LEASE, namespace)["metadata"]["annotations"]
    layout = str(redis_keys.OWN_LAYOUT)
    assert (notes[VERSION_ANNOTATION], notes[LAYOUT_ANNOTATION]) == (release.version(), layout)


def test_a_candidate_waits_a_whole_lease_after_the_last_renewal_it_saw(
    cluster: KubernetesCluster, namespace: str, clock: Clock
) -> None:
    one, two = candidate(cluster, namespace, "one", clock), candidate(cluster, namespace, "two", clock)
    one.step()
    clock.step(5)
    two.step()  # five seconds late: from now on the candidate counts the age of the Lease by its own clock
    clock.step(SECONDS - 0.1)
    two.step()
    assert not two.leading
    assert two.holder == "one"
    clock.step(0.1)
    two.step()
    assert (two.leading, two.epoch) == (True, 2)
    assert stored(cluster, namespace) == ("two", 2)


def test_a_candidate_looks_again_at_the_moment_at_which_the_lease_ends(
    embedded_cluster: KubernetesCluster, namespace: str
) -> None:
    clock = election.suspend_aware_clock
    candidate(embedded_cluster, namespace, "one", clock).step()
    two = candidate(embedded_cluster, namespace, "two", clock, renew=100 * WAITED, seconds=0.3)
    two.start()
    try:
        until(lambda: two.leading)
    finally:
        two.stop()


def test_a_candidate_that_is_not_fit_says_so_while_another_one_leads(
    cluster: KubernetesCluster, namespace: str, clock: Clock
) -> None:
    candidate(cluster, namespace, "one", clock).step()
    two = candidate(cluster, namespace, "two", clock, fitness=Fitness(unfit=lambda: "Redis is a replica"))
    assert two.step() == "Redis is a replica"
    assert two.holder == "one"


def test_a_renewed_lease_is_not_taken(cluster: KubernetesCluster, namespace: str, clock: Clock) -> None:
    one, two = candidate(cluster, namespace, "one", clock), candidate(cluster, namespace, "two", clock)
    for _ in range(20):
        one.step()
        two.step()
        clock.step(2)
        assert one.leading
        assert not two.leading


def test_a_leader_that_cannot_renew_stops_before_another_one_starts(
    cluster: KubernetesCluster, namespace: str, clock: Clock
) -> None:
    one, two = candidate(cluster, namespace, "one", clock), candidate(cluster, namespace, "two", clock)
    one.step()
    two.step()
    began = clock()
    clock.step(DEADLINE - 0.5)
    assert one.leading
    clock.step(0.5)
    assert not one.leading
    while not two.leading:
        clock.step(0.5)
        two.step()
    assert clock() == began + SECONDS
    with pytest.raises(LeadershipLost):
        one.raise_epoch()
    one.step()
    assert not one.leading
    assert one.holder == "two"
    assert stored(cluster, namespace) == ("two", 2)


def test_a_leader_that_missed_a_whole_lease_returns_in_a_new_term(
    cluster: KubernetesCluster, namespace: str, clock: Clock
) -> None:
    one = candidate(cluster, namespace, "one", clock)
    one.step()
    clock.step(SECONDS)
    assert not one.leading
    one.step()
    assert (one.leading, one.epoch) == (True, 2)


def test_a_stopped_leader_releases_the_lease(cluster: KubernetesCluster, namespace: str, clock: Clock) -> None:
    one, two = candidate(cluster, namespace, "one", clock), candidate(cluster, namespace, "two", clock)
    one.step()
    two.step()
    one.stop()
    assert not one.leading
    assert stored(cluster, namespace) == ("", 1)
    two.step()
    assert (two.leading, two.epoch) == (True, 2)


def test_a_stopped_candidate_leaves_the_lease_as_it_is(
    cluster: KubernetesCluster, namespace: str, clock: Clock
) -> None:
    one, two = candidate(cluster, namespace, "one", clock), candidate(cluster, namespace, "two", clock)
    one.step()
    two.step()
    two.stop()
    assert stored(cluster, namespace) == ("one", 1)


class Between:
    """A cluster that runs a function between a candidate's read and its write."""

    def __init__(self, cluster: KubernetesCluster, happens: object) -> None:
        self.get, self.create = cluster.get, cluster.create
        self._cluster, self._happens = cluster, happens

    def patch(self, *args: object, **kwargs: object) -> object:
        happens, self._happens = self._happens, lambda: None
        happens()
        return self._cluster.patch(*args, **kwargs)


def test_one_of_two_simultaneous_candidates_wins_and_the_other_follows(
    cluster: KubernetesCluster, namespace: str, clock: Clock
) -> None:
    one = candidate(cluster, namespace, "one", clock)
    two = candidate(Between(cluster, one.step), namespace, "two", clock)
    with pytest.raises(errors.Conflict):
        two.step()
    assert (one.leading, two.leading) == (True, False)
    two.step()
    assert (two.leading, two.holder) == (False, "one")


def test_a_conflict_is_not_reported_as_a_failure(
    embedded_cluster: KubernetesCluster, namespace: str, clock: Clock
) -> None:
    one = candidate(embedded_cluster, namespace, "one", clock)
    two = candidate(Between(embedded_cluster, one.step), namespace, "two", clock, renew=0.01)
    two.start()
    try:
        until(lambda: two.holder == "one")
        assert two.failing == ""
    finally:
        two.stop()


def test_raise_epoch_exceeds_every_known_epoch(cluster: KubernetesCluster, namespace: str, clock: Clock) -> None:
    one = candidate(cluster, namespace, "one", clock)
    one.step()
    assert [one.raise_epoch(), one.raise_epoch(above=57), one.raise_epoch(above=3)] == [2, 58, 59]
    one.step()
    assert (one.epoch, stored(cluster, namespace)) == (59, ("one", 59))


def test_an_epoch_that_is_not_a_number_counts_as_0(cluster: KubernetesCluster, namespace: str, clock: Clock) -> None:
    one = candidate(cluster, namespace, "one", clock)
    one.step()
    cluster.patch(LEASES, LEASE, {"metadata": {"annotations": {EPOCH_ANNOTATION: "many"}}}, namespace)
    assert one.raise_epoch(above=4) == 5


class Broken:
    """A cluster whose reads fail while `error` is set."""

    def __init__(self, cluster: KubernetesCluster, error: Exception) -> None:
        self._cluster, self.error, self.asked = cluster, error, 0

    def get(self, *args: object) -> object:
        self.asked += 1
        if self.error is not None:
            raise self.error
        return self._cluster.get(*args)

    def __getattr__(self, verb: str) -> object:
        return getattr(self._cluster, verb)


@pytest.mark.parametrize("error", [errors.Unreachable("the API server is away"), ZeroDivisionError("a defect")])
def test_a_failure_is_logged_once_and_survived(
    embedded_cluster: KubernetesCluster,
    namespace: str,
    clock: Clock,
    error: Exception,
    caplog: pytest.LogCaptureFixture,
) -> None:
    broken = Broken(embedded_cluster, error)
    one = candidate(broken, namespace, "one", clock, renew=0.01)
    one.start()
    try:
        until(lambda: broken.asked > 5)
        assert one.failing
        assert not one.leading
        told = [each for each in caplog.records if each.name == election.log.name and each.levelno >= logging.WARNING]
        assert len(told) == 1
        broken.error = None
        until(lambda: one.leading and not one.failing)
    finally:
        one.stop()
    assert stored(embedded_cluster, namespace) == ("", 1)
