"""Waiting jobs that can be admitted with fewer workers than they request: their entries, and the checks of these
entries.
"""

from dataclasses import replace
from typing import Any

import pytest

from coordinator.cache.job_waits import WaitState
from coordinator.cache.routing_rules import RoutingRules
from coordinator.cache.views import JobView
from coordinator.cache.worker_counts import WorkerCounts
from coordinator.routing import eligibility, feasibility, route
from queues.values import Entry, Reservation
from tests.support.coordinator.builders import KEY, job, quota, refused

ONE = {"cpu": 1000, "pods": 1}
LEAST = {"cpu": 2000, "pods": 2, "jobs": 1}


def charge(workers: int) -> dict[str, int]:
    return {"cpu": 1000 * workers, "pods": workers, "jobs": 1}


def ranged(least: int = 2, wanted: int = 6, step: int = 2, **changes: Any) -> JobView:
    counts = WorkerCounts(least, wanted, step, charge(least), ONE)
    return job(charge=charge(wanted), workers=counts, **changes)


def further(state: JobView, rules: RoutingRules) -> int:
    return route.entry(state, rules).most


def test_the_entry_of_a_job_with_a_range_demands_the_least_and_takes_more() -> None:
    assert route.entry(ranged(), RoutingRules()) == Entry(
        key=KEY, queue="a", submitted=100.0, demand=LEAST, size=2, unit=ONE, most=4, step=2
    )


def test_the_entry_of_an_elastic_job_without_a_range_demands_all_workers_and_counts_them() -> None:
    entry = route.entry(ranged(least=6), RoutingRules())
    assert entry == Entry(key=KEY, queue="a", submitted=100.0, demand=charge(6), size=6)


@pytest.mark.parametrize(("cpu", "most"), [(2000, 0), (3999, 0), (4000, 2), (5999, 2), (6000, 4), (9000, 4)])
def test_a_job_demands_no_workers_that_it_could_never_have(cpu: int, most: int) -> None:
    assert further(ranged(), RoutingRules(ceilings={"a": {"cpu": cpu}})) == most
    assert further(ranged(), RoutingRules(quotas={"team": (quota(cpu=(cpu + 1000, 1000)),)})) == most


def test_a_returning_job_takes_no_more_than_it_held() -> None:
    waits = WaitState(queue="a", drained=True, held=charge(4))
    entry = route.entry(ranged(waits=waits), RoutingRules())
    assert (entry.returning, entry.most) == (True, 2)
    assert not route.entry(ranged(waits=replace(waits, held=charge(1))), RoutingRules()).returning


def test_a_job_that_a_resource_quota_refused_is_tried_with_the_least_number() -> None:
    assert further(ranged(waits=refused()), RoutingRules()) == 0


def test_a_job_is_judged_by_the_least_that_it_can_be_admitted_with() -> None:
    assert eligibility.of(ranged(), RoutingRules(ceilings={"a": {"cpu": 2000}}), 0.0).code == ""
    assert eligibility.of(ranged(), RoutingRules(ceilings={"a": {"cpu": 1999}}), 0.0).code == "ExceedsQuota"
    enough, short = (RoutingRules(quotas={"team": (quota(pods=(4, used)),)}) for used in (2, 3))
    assert eligibility.of(ranged(), enough, 0.0).code == ""
    assert eligibility.of(ranged(), short, 0.0).code == "NamespaceQuota"
    assert feasibility.request_of(ranged()).charge == LEAST


@pytest.mark.parametrize(
    ("size", "amounts", "serves"),
    [
        (2, LEAST, True),
        (4, charge(4), True),
        (6, charge(6), True),
        (3, charge(3), False),
        (8, charge(8), False),
        (4, LEAST, False),
        (0, charge(6), False),
    ],
)
def test_a_pick_serves_a_job_with_as_many_workers_as_its_range_has(
    size: int, amounts: dict[str, int], serves: bool
) -> None:
    state, held = ranged(), Reservation(key=KEY, queue="a", attempt=1, epoch=1, charge=amounts, size=size)
    assert route.is_charged_in_full(state, route.entry(state, RoutingRules()), held) == serves
