"""The full reconcile benchmark: its reservations, the raw calls to which reconciles are compared, and a short run from
end to end.
"""

import pytest

from bench.benchmarks import full_reconcile
from bench.support import raw_caller
from crds.torchjob import torchjob
from kube.api import Manifest
from tests.support.coordinator.desk import manifest

GIVEN = {"namespace": "b", "uid": "u", "creationTimestamp": "2026-01-02T03:04:05Z", "resourceVersion": "1"}


def test_reservation_returns_what_a_pick_would_store() -> None:
    body = full_reconcile.job("job-8-0", "team", "size-8", 8)
    body["metadata"] |= GIVEN
    found = full_reconcile.reservation(body, 3)
    assert (found.queue, found.attempt, found.epoch, found.pick) == ("team", 1, 1, 3)
    assert found.charge == {"jobs": 1, "pods": 8, "cpu": 8000}
    assert all(not task.depends_on for task in torchjob.parse(body).spec.tasks.values())


def test_bare_returns_the_pod_without_its_job_and_node() -> None:
    pod = {
        "metadata": {"name": "one-0-worker-0", "uid": "u", "labels": {"a": "b"}, "annotations": {"c": "d"}},
        "spec": {"containers": [{"name": "torch"}], "nodeName": "n", "hostname": "h"},
    }
    assert full_reconcile.with_name(full_reconcile.bare(pod), "x-1") == {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "x-1", "annotations": {"c": "d"}},
        "spec": {"containers": [{"name": "torch"}], "hostname": "h"},
    }


class Recorder:
    """A cluster client that records the calls and sends nothing."""

    def __init__(self) -> None:
        self.calls: list[str] = []

    def __getattr__(self, verb: str) -> object:
        def call(resource: object, *_: object, **__: object) -> Manifest:
            self.calls.append(f"{verb} {resource.kind}")  # type: ignore[attr-defined]
            return manifest("train")

        return call


def test_the_raw_caller_sends_the_requests_of_a_reconcile() -> None:
    cluster = Recorder()
    with raw_caller.ThreadPoolExecutor(1) as writers:
        raw_caller.reconcile(cluster, writers, "b", "train", {"phase": "Admitted"}, [{}], [{}, {}])  # type: ignore[arg-type]
        raw_caller.reconcile(cluster, writers, "b", "train", None, [], [])  # type: ignore[arg-type]
    once = ["get TorchJob", "patch TorchJob", "create Service", "create Pod", "create Pod"]
    assert cluster.calls == [*once, "get TorchJob"]


@pytest.mark.redis_server
@pytest.mark.stack
def test_a_short_reconcile_benchmark_measures_each_job_size() -> None:
    found = full_reconcile.run(full_reconcile.Options(sizes=(1, 3), pods=3, workers=1, seconds=60))["by_size"]
    assert [each["jobs"] for each in found.values()] == [3, 1]
    assert all(each["share_first"] > 0 and each["share_again"] > 0 for each in found.values())
