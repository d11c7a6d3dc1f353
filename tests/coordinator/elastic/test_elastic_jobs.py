"""The elastic jobs in a plan of resizes: their bounds, and what keeps a job from being resized."""

from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest

from coordinator.cache.autoscaling import Autoscaling
from coordinator.cache.routing_rules import RoutingRules
from coordinator.cache.views import JobView
from coordinator.cache.worker_counts import WorkerCounts
from coordinator.elastic import elastic_jobs
from coordinator.elastic.elastic_jobs import Circumstances
from crds.keys import JobKey
from crds.tenantqueue import TenantQueueSpec
from crds.torchjob.status import Target
from queues.resizing.values import ElasticJob, digest
from queues.values import Reservation
from tests.support.coordinator.builders import KEY, admission, job, quota

NOW = 1000.0
ONE = {"cpu": 1000, "pods": 1}
HEAD = JobKey("other", "big", "u9")


def elastic(workers: int = 4, *, counts: Any = (), view: Any = (), **scaling: Any) -> JobView:
    """Return a running elastic job that requests 4 workers and may have 2 to 8."""
    state = Autoscaling(**{"on": True, "most": 8, "every": 300.0, **scaling})
    numbers = WorkerCounts(2, 4, 1, {"cpu": 2000, "pods": 2, "jobs": 1}, ONE, autoscaling=state)
    given = admission(charge={"cpu": workers * 1000, "pods": workers, "jobs": 1}, workers=workers, grown=3)
    usual = {"phase": "Running", "attempt": 1, "admission": given, "workers": replace(numbers, **dict(counts))}
    return job(**{**usual, **dict(view)})


def around(**changes: Any) -> Circumstances:
    return Circumstances(**{"rules": RoutingRules(), "now": NOW, "idle_seconds": 30.0, **changes})


def found(view: JobView, **changes: Any) -> ElasticJob:
    result = elastic_jobs.of(view, around(**changes))
    assert result is not None
    return result


def held(**changes: Any) -> dict[JobKey, Reservation]:
    fields = {"attempt": 1, "charge": {}, "size": 4, "grown": 3}
    return {KEY: Reservation(key=KEY, queue="a", epoch=3, **{**fields, **changes})}


def give_back(workers: int, recipient: str = "") -> Target:
    return Target(workers=workers, reason="GiveBack", recipient=recipient, since=datetime.fromtimestamp(NOW, UTC))


def test_a_job_goes_into_a_plan_with_its_bounds_and_its_rest() -> None:
    view = elastic(6, idle=2, resized_at=900.0, growth_seconds=20.0, view={"priority": 5})
    assert found(view) == ElasticJob(
        key=KEY,
        queue="a",
        workers=6,
        least=2,
        wanted=4,
        most=8,
        unit=ONE,
        idle=2,
        autoscale=True,
        priority=5,
        submitted=100.0,
        resting_until=1200.0,
        idle_seconds=100.0,
    )


@pytest.mark.parametrize(
    "view",
    [
        pytest.param(elastic(view={"finished": True}), id="finished"),
        pytest.param(elastic(view={"deleting": True}), id="deleting"),
        pytest.param(replace(elastic(), admission=None), id="waiting"),
        pytest.param(elastic(counts={"autoscaling": None}), id="resized by its owner alone"),
    ],
)
def test_other_jobs_are_in_no_plan(view: JobView) -> None:
    assert elastic_jobs.of(view, around()) is None


@pytest.mark.parametrize(
    ("view", "changes", "code"),
    [
        (elastic(view={"phase": "Admitted"}), {}, "NotRunning"),
        (elastic(view={"suspended": True}), {}, "Suspended"),
        (elastic(view={"cancelled": True}), {}, "Cancelled"),
        (elastic(change="Resizing"), {}, "Resizing"),
        (elastic(), {"held": held(size=6, grown=4)}, "Resizing"),
        (elastic(change="Restarting"), {}, "Restarting"),
        (elastic(restarts_at=NOW + 1), {}, "Restarting"),
        (elastic(restarts_at=NOW), {}, ""),
        (elastic(), {"requested": lambda key: key == KEY}, "ScaleRequest"),
        (elastic(), {"rules": RoutingRules(queues={"a": TenantQueueSpec(stop_policy="HoldAndDrain")})}, "QueueDrained"),
        (elastic(), {"refused": {KEY: NOW + 1}}, "NotCarriedOut"),
        (elastic(change="Resizing", leaving=1), {"late": {KEY}}, "LeavesLate"),
    ],
)
def test_a_job_that_is_busy_is_not_changed(view: JobView, changes: dict[str, Any], code: str) -> None:
    assert found(view, **changes).busy == code


@pytest.mark.parametrize(
    ("view", "rules", "code"),
    [
        (elastic(view={"held": True}), RoutingRules(), "Held"),
        (elastic(), RoutingRules(queues={"a": TenantQueueSpec(stop_policy="Hold")}), "QueueHeld"),
        (elastic(), RoutingRules(queues={"a": TenantQueueSpec(namespaces=("others",))}), "NotAllowed"),
        (elastic(), RoutingRules(implicit=False), "NotAllowed"),
        (elastic(obstacle="PodsMissing"), RoutingRules(), "PodsMissing"),
    ],
)
def test_what_keeps_a_job_from_growing_does_not_keep_it_from_giving_back(
    view: JobView, rules: RoutingRules, code: str
) -> None:
    assert elastic_jobs.growth_obstacle(view, around(rules=rules))[0] == code
    assert (found(view, rules=rules).resting_until, found(view, rules=rules).busy) == (float("inf"), "")


@pytest.mark.parametrize(
    ("view", "changes", "size", "leaving"),
    [
        pytest.param(elastic(target=give_back(3)), {}, 4, 1, id="no worker has begun"),
        pytest.param(elastic(target=give_back(2), leaving=2, change="Resizing"), {}, 4, 2, id="victims are named"),
        pytest.param(elastic(3), {"held": held(size=5)}, 5, 2, id="gone, and their room is not free yet"),
        pytest.param(elastic(target=give_back(3), void=True), {}, 4, 0, id="the owner wants fewer"),
        pytest.param(elastic(leaving=2), {"late": {KEY}}, 4, 0, id="nobody counts on them any more"),
    ],
)
def test_workers_on_their_way_out_count_until_their_room_is_free(
    view: JobView, changes: dict[str, Any], size: int, leaving: int
) -> None:
    result = found(view, **changes)
    assert (result.workers, result.leaving) == (size, leaving)


def test_a_target_says_for_which_job_workers_leave() -> None:
    assert found(elastic(target=give_back(3, digest(HEAD)))).leaving_for == digest(HEAD)
    by_earlier_version = give_back(3, str(HEAD))
    assert found(elastic(target=by_earlier_version)).leaving_for == str(HEAD)
    assert found(elastic(target=by_earlier_version.model_copy(update={"reason": "GainTooSmall"}))).leaving_for is None


def test_no_pods_are_added_that_a_resource_quota_refuses() -> None:
    rules = RoutingRules(quotas={"team": (quota(pods=(6, 4)),)})
    assert found(elastic(), rules=rules).most == 6
    full = RoutingRules(quotas={"team": (quota(pods=(4, 4)),)})
    assert found(elastic(), rules=full).most == 4


@pytest.mark.parametrize(("seconds", "code"), [(120.0, ""), (121.0, "EndsSlowly")])
def test_a_job_that_ends_slowly_does_not_grow(seconds: float, code: str) -> None:
    view, circumstances = elastic(exit_seconds=seconds), around(idle_grace=120.0)
    said, sentence = elastic_jobs.growth_obstacle(view, circumstances)
    assert said == code
    assert ("121 s, are more than the setting idle_grace, 120 s" in sentence) is bool(code)
    assert (found(view, idle_grace=120.0).resting_until == float("inf")) is bool(code)


@pytest.mark.parametrize(
    ("view", "changes", "yields"),
    [
        (elastic(6, idle=2, view={"phase": "Admitted"}), {}, True),
        (elastic(6, idle=2, change="Resizing"), {}, True),
        (elastic(6, idle=2, restarts_at=NOW + 1), {}, True),
        (elastic(6, idle=2, view={"suspended": True}), {}, False),
        (elastic(4), {"held": held(size=6, grown=4)}, False),  # no worker process has written the growth
        (elastic(6, idle=2), {"refused": {KEY: NOW + 1}}, False),
    ],
)
def test_a_busy_job_gives_idle_growth_back(view: JobView, changes: dict[str, Any], yields: bool) -> None:
    assert found(view, **changes).yields is yields
