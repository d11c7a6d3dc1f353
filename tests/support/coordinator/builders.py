"""Builders of the values that the coordinator's code works on; a test names only the fields that matter to it."""

from typing import Any

from coordinator.cache.job_waits import QuotaRefusal, WaitState
from coordinator.cache.node_views import NodeView
from coordinator.cache.views import JobView, PodView
from crds.keys import JobKey
from crds.resources import quantities
from crds.torchjob import resource_quota
from crds.torchjob.resource_quota import Limit, NamespaceDemand, Quota, Scope
from crds.torchjob.status import Admission

KEY = JobKey("team", "train", "u1")


def job(**changes: Any) -> JobView:
    """Return the view of a job that waits in queue a."""
    fields: dict[str, Any] = {
        "key": KEY,
        "queue": "a",
        "submitted": 100.0,
        "charge": {"cpu": 2000, "jobs": 1},
        "phase": "Queued",
    }
    return JobView(**{**fields, **changes})


def admission(**changes: Any) -> Admission:
    """Return an admission of the job that `job` returns."""
    fields: dict[str, Any] = {
        "queue": "a",
        "attempt": 1,
        "epoch": 3,
        "charge": {"cpu": 2000, "jobs": 1},
        "port": 20_001,
        "admittedAt": "2026-01-01T00:00:00Z",
    }
    return Admission.model_validate({**fields, **changes})


def pod(**changes: Any) -> PodView:
    """Return the view of a pod of this job. The pod occupies room."""
    fields: dict[str, Any] = {
        "namespace": "team",
        "name": "train-master-0",
        "job": KEY,
        "queue": "a",
        "attempt": 1,
        "occupies": True,
        "demand": {"cpu": 1000},
    }
    return PodView(**{**fields, **changes})


def node(**changes: Any) -> NodeView:
    """Return the view of a ready node of eight CPUs."""
    fields: dict[str, Any] = {
        "name": "one",
        "ready": True,
        "allocatable": {"cpu": 8000, "memory": 1 << 30, "pods": 110},
    }
    return NodeView(**{**fields, **changes})


def quota(name: str = "compute", scopes: tuple[Scope, ...] = (), **limits: tuple[int, int | None]) -> Quota:
    """Return a ResourceQuota of the job's namespace. `limits` holds (hard, used) by name, in canonical units; `_`
    stands for a dot."""
    named = ((each.replace("_", "."), amounts) for each, amounts in limits.items())
    found = (Limit(each, hard, used, quantities.canonical(each)) for each, (hard, used) in named)
    return Quota("team", name, tuple(found), scopes)


def refused(until: float = 0.0, needs: NamespaceDemand | None = None, **changes: Any) -> WaitState:
    """Return the state of a waiting job that ResourceQuota compute refused while its limit was 9 cores."""
    given = needs or resource_quota.of_charge({"cpu": 2000, "jobs": 1})
    fields: dict[str, Any] = {"quota": "compute", "hard": (("cpu", "9"),), "needs": given, **changes}
    retry = fields.pop("retry", 0.0)
    return WaitState(queue="a", until=until, dated=True, retry=retry, refusal=QuotaRefusal(**fields))
