"""Values of the coordinator's room, with only what a test cares about spelled out."""

from typing import Any

from coordinator.cache.job_waits import Refusal, Waits
from coordinator.cache.views import JobView, NodeView, PodView
from crds.keys import JobKey
from crds.resources import quantities
from crds.torchjob import resource_quota
from crds.torchjob.resource_quota import Limit, Needs, Quota, Scope
from crds.torchjob.status import Admission

KEY = JobKey("team", "train", "u1")


def job(**changes: Any) -> JobView:
    """A job that waits in queue a."""
    fields: dict[str, Any] = {
        "key": KEY,
        "queue": "a",
        "submitted": 100.0,
        "charge": {"cpu": 2000, "jobs": 1},
        "phase": "Queued",
    }
    return JobView(**{**fields, **changes})


def admission(**changes: Any) -> Admission:
    """An admission of that job."""
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
    """One of the job's pods, occupying."""
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
    """A ready node of eight CPUs."""
    fields: dict[str, Any] = {
        "name": "one",
        "ready": True,
        "allocatable": {"cpu": 8000, "memory": 1 << 30, "pods": 110},
    }
    return NodeView(**{**fields, **changes})


def quota(name: str = "compute", scopes: tuple[Scope, ...] = (), **limits: tuple[int, int | None]) -> Quota:
    """A ResourceQuota of the job's namespace: hard and used by name, in canonical units; `_` stands for a dot."""
    named = ((each.replace("_", "."), amounts) for each, amounts in limits.items())
    found = (Limit(each, hard, used, quantities.canonical(each)) for each, (hard, used) in named)
    return Quota("team", name, tuple(found), scopes)


def refused(until: float = 0.0, needs: Needs | None = None, **changes: Any) -> Waits:
    """How a job waits that ResourceQuota compute refused, which had 9 cores then."""
    given = needs or resource_quota.of_charge({"cpu": 2000, "jobs": 1})
    fields: dict[str, Any] = {"quota": "compute", "hard": (("cpu", "9"),), "needs": given, **changes}
    retry = fields.pop("retry", 0.0)
    return Waits(queue="a", until=until, dated=True, retry=retry, refusal=Refusal(**fields))
