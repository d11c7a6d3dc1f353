"""The finding about jobs whose gangs are not bound as a whole."""

from types import SimpleNamespace
from typing import Any

from coordinator.doctor.collect import Collector
from crds.api_resources import LEASES, TORCHJOBS, Resource
from crds.keys import JobKey
from kube import errors
from tests.support.coordinator.desk import manifest

WORDS = "2 pods of gang one-0 have nodes, and it needs 3"


def job(name: str, reason: str) -> dict[str, Any]:
    """Return a running job as the API server shows it."""
    found = manifest(name)
    found["metadata"] |= {"namespace": "team", "uid": f"u-{name}", "creationTimestamp": "2026-01-02T03:04:05Z"}
    told = {"type": "Running", "status": "True", "reason": reason, "message": WORDS}
    admission = {"queue": "a", "attempt": 1, "epoch": 1, "charge": {"jobs": 1}}
    return {**found, "status": {"phase": "Running", "admission": admission, "conditions": [told]}}


class Jobs:
    """A cluster that has only jobs."""

    def pages(self, resource: Resource, **_: Any) -> list[Any]:
        items = [job("one", "GangNotWhole"), job("two", "Running")] if resource == TORCHJOBS else []
        return [SimpleNamespace(items=items)]

    def list(self, _: Resource) -> Any:
        return SimpleNamespace(items=[])

    def serves(self, _: Resource) -> bool:
        return False

    def get(self, resource: Resource, name: str, _: str) -> Any:
        assert resource == LEASES
        raise errors.NotFound(name)


def test_doctor_collects_gangs_that_are_not_bound_as_a_whole() -> None:
    nothing: Any = SimpleNamespace(inspect=lambda: None)
    cluster: Any = Jobs()
    found = Collector(cluster, nothing, nothing, "torchq-system").collect().cluster
    assert (found.unreadable, found.split_gangs) == ({}, {JobKey("team", "one", "u-one"): WORDS})
