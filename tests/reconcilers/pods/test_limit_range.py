"""Requests that a real API server adds to pods: defaults of a LimitRange and the overhead of a RuntimeClass."""

import pytest

from crds.api_resources import Resource
from crds.resources.amounts import Amounts
from queues.values import Refusal
from tests.support.reconcilers.bench import Bench
from tests.support.reconcilers.builders import task, template

LIMIT_RANGES = Resource("", "v1", "limitranges", "LimitRange", namespaced=True)
RUNTIME_CLASSES = Resource("node.k8s.io", "v1", "runtimeclasses", "RuntimeClass", namespaced=False)
GPU = "nvidia.com/gpu"
BARE = template(resources={})
pytestmark = [pytest.mark.apiserver, pytest.mark.parametrize("server", ["real"], indirect=True)]


def limit(bench: Bench, **defaults: str) -> None:
    """Create a LimitRange whose defaults apply to containers without these requests."""
    item = {"type": "Container", "default": defaults, "defaultRequest": defaults}
    body = {"apiVersion": "v1", "kind": "LimitRange", "metadata": {"name": "defaults"}, "spec": {"limits": [item]}}
    bench.cluster.create(LIMIT_RANGES, body, bench.namespace)


def go(bench: Bench, answer: Refusal, times: int) -> list[Amounts]:
    """Reconcile with this answer of the store, and return the charges that the store was asked to accept."""
    asked: list[Amounts] = []

    def raise_charge(_key: object, _token: str, _attempt: int, charge: Amounts) -> Refusal:
        asked.append(charge)
        return answer

    bench.reconcile(times=times, raise_charge=raise_charge)
    return asked


def test_job_is_charged_for_devices_that_a_limit_range_adds(bench: Bench) -> None:
    limit(bench, **{"cpu": "2", GPU: "8"})
    bench.submit({"Master": task(template=BARE), "Worker": task(3, template=BARE, dependsOn=[])})
    bench.pick()
    assert bench.job.charge == {"jobs": 1, "pods": 4}
    go(bench, "", 1)
    assert len(bench.names()) <= 2, "no second pod of a task is made before the first was measured"
    go(bench, "", 6)
    assert len(bench.names()) == 4
    admission = bench.job.admission
    assert admission is not None
    assert admission.charge == {"jobs": 1, "pods": 4, "cpu": 8000, GPU: 32}


def test_job_is_sent_back_when_quota_cannot_hold_added_devices(bench: Bench) -> None:
    limit(bench, **{GPU: "8"})
    bench.submit({"Worker": task(4, template=BARE)})
    bench.pick()
    go(bench, "quota", 1)
    (made,) = bench.names()
    assert go(bench, "quota", 1) == [{"jobs": 1, "pods": 4, GPU: 32}]
    bench.remove(made)
    go(bench, "quota", 1)
    assert bench.names() == []
    assert bench.true_condition("Queued")[0] == "ExceedsQuota"
    assert bench.job.charge == {"jobs": 1, "pods": 4, GPU: 32}


def test_job_is_charged_for_overhead_of_runtime_class(bench: Bench) -> None:
    name = f"sandboxed-{bench.namespace}"
    body = {"apiVersion": "node.k8s.io/v1", "kind": "RuntimeClass", "metadata": {"name": name}, "handler": "sandboxed"}
    bench.cluster.create(RUNTIME_CLASSES, {**body, "overhead": {"podFixed": {"cpu": "250m", "memory": "1Mi"}}})
    try:
        spec = template()["spec"] | {"runtimeClassName": name}
        bench.submit({"Worker": task(2, template={"spec": spec})})
        bench.pick()
        go(bench, "", 5)
    finally:
        bench.cluster.delete(RUNTIME_CLASSES, name)
    admission = bench.job.admission
    assert admission is not None
    assert len(bench.names()) == 2
    assert admission.charge == {"jobs": 1, "pods": 2, "cpu": 2500, "memory": 2 << 20}


def test_job_is_charged_for_pod_level_resources_that_the_server_drops(bench: Bench) -> None:
    """No pod takes more than its share, even if the server does not support `spec.resources`."""
    spec = template(resources={"requests": {"cpu": "4"}})["spec"] | {"resources": {"requests": {"cpu": "5"}}}
    bench.submit({"Worker": task(2, template={"spec": spec})})
    bench.pick()
    assert bench.job.charge["cpu"] == 10_000
    assert go(bench, "quota", 3) == []
    assert len(bench.names()) == 2
