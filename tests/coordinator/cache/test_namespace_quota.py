"""Jobs that ResourceQuotas keep out of the order, and refused jobs that are routed again."""

from functools import partial
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coordinator.cache.quota_jobs import EVERY, QuotaJobs
from coordinator.cache.routing_rules import RoutingRules
from coordinator.cache.views import JobView
from coordinator.routing import namespace_quota, route
from crds.keys import JobKey
from crds.torchjob import resource_quota
from crds.torchjob.resource_quota import Quota
from tests.support.clock import Clock
from tests.support.coordinator.builders import admission, job, quota, refused

NOW = 1000.0
PLACE = partial(route.sort_key, rules=RoutingRules())


def one(number: int, cpu: int = 2000, **changes: Any) -> JobView:
    """Return a job that a ResourceQuota refused; a higher number is a younger job."""
    waits = refused(needs=resource_quota.of_charge({"cpu": cpu, "pods": 1}), **changes.pop("refusal", {}))
    fields = {"key": JobKey("team", f"j{number}", f"u{number}"), "submitted": 100.0 + number, "waits": waits}
    return job(**{**fields, "charge": {"cpu": cpu, "pods": 1, "jobs": 1}, **changes})


def yields(*jobs: JobView, free: int = 4000, arrived: int = 0) -> list[str]:
    quotas = (quota(cpu=(10_000, 10_000 - free)),)
    found = namespace_quota.yielding_jobs(jobs, quotas, NOW, services=True, arrived=lambda _: arrived, place=PLACE)
    return sorted(key.name for key in found)


def test_jobs_that_fit_together_go_by_priority_and_age() -> None:
    assert yields(*map(one, range(4))) == ["j2", "j3"]
    assert yields(one(0), one(1), one(2, priority=5)) == ["j1"]
    assert yields(one(0, 3000), one(1, 2000), one(2, 1000)) == ["j1"], (
        "a younger job that fits beside the oldest job goes"
    )


def test_a_job_that_does_not_fit_or_cannot_go_delays_no_other_job() -> None:
    for changes in (
        {"cpu": 9000},
        {"held": True},
        {"suspended": True},
        {"cancelled": True},
        {"deleting": True},
        {"finished": True},
        {"refusal": {"until": NOW + 1, "hard": (("cpu", "10"),)}},
        {"queue": "b"},
        {"reason": "WaitingForPool"},
        {"reason": "QueueHeld"},
    ):
        assert yields(one(0, **changes), one(1), one(2)) == [], changes


def test_a_job_that_only_the_quota_keeps_out_goes_before_younger_ones() -> None:
    assert yields(one(0, reason="NamespaceQuota"), one(1, reason="NamespaceQuota"), one(2)) == ["j2"]


def test_room_of_an_admitted_job_is_reserved_until_its_pods_arrive() -> None:
    coming = one(0, admission=admission(charge={"cpu": 4000, "pods": 1, "jobs": 1}), phase="Admitted")
    assert yields(coming, one(1), one(2)) == ["j2"]
    assert yields(coming, one(1), one(2), arrived=1) == []
    running = one(0, admission=admission(), phase="Running")
    assert yields(running, one(1), one(2)) == []


@given(st.lists(st.tuples(st.integers(1, 5), st.integers(0, 2)), max_size=8), st.integers(0, 12))
def test_the_jobs_that_go_fit_the_quota_together(drawn: list[tuple[int, int]], free: int) -> None:
    jobs = [one(number, cpu * 1000, priority=priority) for number, (cpu, priority) in enumerate(drawn)]
    behind = yields(*jobs, free=free * 1000) if free <= 10 else []
    fitting = [each for each in jobs if each.charge["cpu"] <= min(free, 10) * 1000] if free <= 10 else []
    going = [each for each in fitting if each.key.name not in behind]
    used = sum(each.charge["cpu"] for each in going)
    assert used <= min(free, 10) * 1000
    assert set(behind) <= {each.key.name for each in fitting}
    if behind:
        assert going


CHANGES = [
    ({}, quota(cpu=(9000, 0)), True),
    ({}, quota(cpu=(9001, 0)), False),
    ({}, quota(cpu=(8999, 0)), True),
    ({}, quota(pods=(9, 0)), False),
    ({}, quota("another", cpu=(9000, 0)), False),
    ({"outdated": True}, quota(cpu=(9000, 0)), False),
    ({"retry": NOW}, quota(cpu=(9000, 0)), False),
    ({"retry": NOW + 1}, quota(cpu=(9000, 0)), True),
    ({"quota": "", "hard": ()}, quota(cpu=(99_000, 0)), True),
    ({"hard": (("cpu", ""),)}, quota(cpu=(99_000, 0)), True),
    ({"hard": (("cpu", "many"),)}, quota(cpu=(99_000, 0)), True),
]


@pytest.mark.parametrize(("refusal", "there", "pauses"), CHANGES)
def test_a_pause_ends_when_the_quota_that_refused_the_job_changes(
    refusal: dict[str, Any], there: Quota, pauses: bool
) -> None:
    found = namespace_quota.find_block(one(1, refusal={"until": NOW + 9, **refusal}), (there,), NOW)
    assert (found is not None) == pauses
    if found is not None:
        assert found.until == min(NOW + 9, refusal.get("retry", NOW + 9))


def due(jobs: QuotaJobs) -> list[str]:
    return [namespace for namespace, _ in jobs.take_due()]


def test_a_namespace_is_due_at_once_and_then_at_intervals(clock: Clock) -> None:
    first, second = one(0), one(1)
    jobs = QuotaJobs(clock)
    jobs.note(None, first)
    assert len(jobs) == 0, "nothing is kept of namespaces without ResourceQuotas"
    jobs.quotas_changed("team", lambda: [first, one(2, key=JobKey("other", "x", "x"))])
    assert jobs.take_due() == [("team", (first.key,))]
    jobs.quotas_changed("team", lambda: [])
    assert due(jobs) == []
    clock.step(EVERY)
    assert due(jobs) == ["team"]
    jobs.note(None, second)
    clock.step(EVERY)
    assert jobs.take_due() == [("team", tuple({first.key, second.key}))]


def test_record_returns_only_jobs_whose_answer_changed(clock: Clock) -> None:
    first, second, third = one(0), one(1), one(2)
    jobs = QuotaJobs(clock)
    jobs.quotas_changed("team", lambda: [first, second])
    assert jobs.take_due()
    assert set(jobs.record("team", frozenset({first.key}), limited=True)) == {first.key, second.key}
    assert set(jobs.record("team", frozenset({first.key}), limited=True)) == set()
    assert set(jobs.record("team", frozenset({second.key}), limited=True)) == {first.key, second.key}
    jobs.note(None, third)
    assert set(jobs.record("team", frozenset({second.key}), limited=True)) == {third.key}
    jobs.note(third, None)
    jobs.note(second, one(1, finished=True))
    assert set(jobs.record("team", frozenset(), limited=True)) == {second.key}


def test_nothing_is_kept_after_the_last_quota_is_deleted(clock: Clock) -> None:
    first = one(0)
    jobs = QuotaJobs(clock)
    jobs.quotas_changed("team", lambda: [first])
    assert jobs.take_due()
    jobs.record("team", frozenset({first.key}), limited=True)
    jobs.quotas_changed("team", lambda: [])
    clock.step(EVERY)
    assert due(jobs) == ["team"]
    assert set(jobs.record("team", frozenset(), limited=False)) == {first.key}
    assert len(jobs) == 0
