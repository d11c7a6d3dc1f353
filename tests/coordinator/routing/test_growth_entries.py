"""The entry with which an admitted job waits for more workers, and the reasons that keep the entry out of the order."""

from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest

from coordinator.cache.autoscaling import Autoscaling
from coordinator.cache.routing_rules import RoutingRules
from coordinator.cache.views import JobPods, JobView
from coordinator.cache.worker_counts import WantedGrowth, WorkerCounts
from coordinator.routing import growth_entries, route
from crds.tenantqueue import TenantQueueSpec
from crds.torchjob.status import Target
from queues.values import Entry
from tests.support.coordinator.builders import KEY, admission, job, quota

NOW = 1000.0
SINCE = datetime.fromtimestamp(950, UTC)
OPEN = RoutingRules()
ONE = {"cpu": 1000, "pods": 1}
OCCUPIED = JobPods(exist=True, occupy=True, queue="a")


def growing(to: int = 6, *, workers: int = 2, step: int = 1, **changes: Any) -> JobView:
    """Return a job that was granted some workers and wants more."""
    charge = {"cpu": workers * 1000, "pods": workers, "jobs": 1}
    wish = WantedGrowth(to, 700.0, changes.pop("not_before", 0.0), whole=changes.pop("whole", False))
    counts = WorkerCounts(2, to, step, {"cpu": 2000, "pods": 2, "jobs": 1}, ONE, wish)
    given = admission(charge=charge, workers=workers, grown=3)
    fields = {"phase": "Running", "attempt": 1, "admission": given, "workers": counts}
    return job(**{**fields, **changes})


def test_a_growth_waits_with_the_age_of_its_request_and_demands_one_step() -> None:
    assert growth_entries.entry(growing(step=2, priority=5), OPEN, NOW) == Entry(
        key=KEY,
        queue="a",
        kind="grow",
        submitted=700.0,
        priority=5,
        demand={"cpu": 2000, "pods": 2},
        size=2,
        unit=ONE,
        most=2,
        step=2,
        grown=3,
    )


def with_idle_growth(workers: int, idle: int, wanted: int, **scaling: Any) -> JobView:
    """Return a job that was resized at 900, with a number of workers of which some are idle growth."""
    found = growing(wanted, workers=workers)
    state = Autoscaling(**{"on": True, "most": 8, "every": 300.0, "idle": idle, "resized_at": 900.0, **scaling})
    counts, growth_wanted = found.workers, WantedGrowth(wanted, 700.0) if wanted > workers else None
    assert counts is not None
    return replace(found, workers=replace(counts, growth=growth_wanted, autoscaling=state))


@pytest.mark.parametrize(
    ("workers", "idle", "wanted", "paid"),
    [
        pytest.param(6, 2, 5, 1, id="a part of the idle growth"),
        pytest.param(6, 2, 6, 2, id="all of it"),
        pytest.param(6, 2, 8, 2, id="all of it, before further workers are added"),
    ],
)
def test_idle_growth_that_the_owner_wants_is_paid_for_in_the_order_of_the_queue(
    workers: int, idle: int, wanted: int, paid: int
) -> None:
    assert growth_entries.entry(with_idle_growth(workers, idle, wanted), OPEN, NOW) == Entry(
        key=KEY, queue="a", kind="grow", submitted=900.0, demand={}, unit=ONE, grown=3, idle=paid
    )


@pytest.mark.parametrize(
    ("scaling", "wanted"),
    [
        pytest.param({}, 4, id="above what the owner wants"),
        pytest.param({"leaving": 1}, 6, id="on its way out"),
        pytest.param({"target": Target(workers=4, reason="GiveBack", since=SINCE)}, 6, id="to be given back"),
    ],
)
def test_idle_growth_is_not_paid_for(scaling: dict[str, Any], wanted: int) -> None:
    assert growth_entries.entry(with_idle_growth(6, 2, wanted, **scaling), OPEN, NOW) is None


def test_idle_growth_of_a_held_job_is_not_paid_for() -> None:
    assert growth_entries.entry(replace(with_idle_growth(6, 2, 6), held=True), OPEN, NOW) is None
    drained = RoutingRules(queues={"a": TenantQueueSpec(stop_policy="HoldAndDrain")})
    assert growth_entries.judge(with_idle_growth(6, 2, 6), drained, NOW).code == "QueueDrained"


def test_a_growth_that_is_all_or_none_demands_all_workers() -> None:
    entry = growth_entries.entry(growing(to=5, step=1, whole=True), OPEN, NOW)
    assert entry is not None
    assert (entry.demand, entry.size, entry.most) == ({"cpu": 3000, "pods": 3}, 3, 0)


def test_a_growth_waits_in_the_queue_that_the_job_is_charged_to() -> None:
    entry = growth_entries.entry(growing(queue="another"), OPEN, NOW)
    assert entry is not None
    assert entry.queue == "a"


def test_a_growth_that_only_fits_in_part_demands_no_more_than_that() -> None:
    entry = growth_entries.entry(growing(to=8, step=2), RoutingRules(ceilings={"a": {"cpu": 7900}}), NOW)
    assert entry is not None
    assert (entry.size, entry.most) == (2, 2)


@pytest.mark.parametrize(
    ("state", "rules", "code"),
    [
        (growing(not_before=NOW + 1), OPEN, "BackingOff"),
        (growing(held=True), OPEN, "Held"),
        (growing(), RoutingRules(ceilings={"a": {"cpu": 2999}}), "ExceedsQuota"),
        (growing(whole=True), RoutingRules(ceilings={"a": {"cpu": 5999}}), "ExceedsQuota"),
        (growing(), RoutingRules(queues={"a": TenantQueueSpec(stop_policy="HoldAndDrain")}), "QueueDrained"),
        (growing(), RoutingRules(queues={"a": TenantQueueSpec(namespaces=("others",))}), "NotAllowed"),
        (growing(), RoutingRules(implicit=False), "QueueNotFound"),
        (growing(), RoutingRules(quotas={"team": (quota(pods=(4, 4)),)}), "NamespaceQuota"),
    ],
)
def test_a_growth_is_out_of_the_order(state: JobView, rules: RoutingRules, code: str) -> None:
    assert growth_entries.judge(state, rules, NOW).code == code
    assert growth_entries.entry(state, rules, NOW) is None


def test_a_growth_is_judged_beside_what_the_job_holds() -> None:
    assert growth_entries.entry(growing(), RoutingRules(ceilings={"a": {"cpu": 3000, "jobs": 1}}), NOW) is not None
    fits = RoutingRules(quotas={"team": (quota(pods=(5, 4)),)})  # the quota counts the existing pods as used
    assert growth_entries.entry(growing(), fits, NOW) is not None


@pytest.mark.parametrize(
    ("state", "put", "withdraw"),
    [
        pytest.param(growing(), True, False, id="growing"),
        pytest.param(growing(not_before=NOW + 1), False, True, id="backing off"),
        pytest.param(growing(suspended=True), False, True, id="suspended"),
        pytest.param(growing(cancelled=True), False, True, id="cancelled"),
        pytest.param(growing(deleting=True), False, True, id="deleting"),
        pytest.param(growing(finished=True), False, True, id="finished"),
        pytest.param(growing(admission=None), False, True, id="sent back"),
        pytest.param(None, False, True, id="gone"),
        pytest.param(job(admission=admission()), False, False, id="never resized"),
    ],
)
def test_route_puts_a_growth_or_withdraws_it(state: JobView | None, put: bool, withdraw: bool) -> None:
    found = route.route(KEY, state, OCCUPIED, OPEN, NOW)
    assert (found.put is not None, found.withdraw, found.remove) == (put, withdraw, False)
    assert found.put is None or found.put.kind == "grow"


def test_a_growth_that_backs_off_is_routed_again_when_that_ends() -> None:
    assert route.route(KEY, growing(not_before=NOW + 5), OCCUPIED, OPEN, NOW).due_at == NOW + 5


def test_a_job_that_has_all_its_workers_withdraws_its_growth() -> None:
    state = growing()
    assert state.workers is not None
    found = route.route(KEY, replace(state, workers=replace(state.workers, growth=None)), OCCUPIED, OPEN, NOW)
    assert (found.put, found.withdraw, found.compared) == (None, True, True)
