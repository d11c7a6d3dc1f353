"""Scale requests as a reconcile sees them: what is read, what cannot be read, and reads that do not use the cache."""

from typing import Any

import pytest

from crds import labels, scale_request
from crds.api_resources import SCALE_INS, SCALE_OUTS
from crds.keys import JobKey
from kube.client import KubernetesCluster
from reconcilers.views import scale_request_view
from reconcilers.views.scale_request_view import RequestReader, RequestView

METADATA = {
    "name": "r",
    "namespace": "team",
    "uid": "u",
    "resourceVersion": "7",
    "creationTimestamp": "2026-01-02T03:04:05Z",
}


def stored(kind: Any = "ScaleIn", **spec: Any) -> dict[str, Any]:
    return scale_request.manifest(kind, "train", **spec) | {"metadata": METADATA}


def test_numbers_and_names_are_read() -> None:
    out = scale_request_view.trim(stored("ScaleOut", toAdd={"count": 2}, timeoutSeconds=5))
    assert (out.label, out.job, out.count, out.names, out.timeout) == ("ScaleOut/r", "train", 2, None, 5)
    named = scale_request_view.trim(stored(toDelete={"podNames": ["a", "b"]}))
    assert (named.adds, named.count, named.names, named.time_to_live) == (False, None, ("a", "b"), 600)


def test_request_that_cannot_be_read_keeps_its_identity() -> None:
    """A newer version may have stored such a request."""
    found = scale_request_view.trim(stored(toDelete={"count": 1}, strategy="Oldest") | {"status": {"phase": "Failed"}})
    assert (found.uid, found.job, found.is_over) == ("u", "train", True)
    assert "spec.strategy" in found.problem


@pytest.mark.parametrize(
    ("owners", "job", "expected"),
    [
        ([], "job", True),
        ([{"kind": "TorchJob", "uid": "job"}], "job", True),
        ([{"kind": "TorchJob", "uid": "earlier"}], "job", False),
        ([{"kind": "Workflow", "uid": "other"}], "job", True),
    ],
)
def test_request_is_for_the_job_that_owns_it(owners: list[dict[str, str]], job: str, expected: bool) -> None:
    manifest = stored(toDelete={"count": 1})
    manifest["metadata"] = METADATA | {"ownerReferences": owners}
    assert scale_request_view.trim(manifest).is_for(job) is expected


class Outdated(list[RequestView]):
    """A cache that is never updated."""

    def indexed(self, _: str) -> list[RequestView]:
        return self


def test_request_is_read_again_if_the_cache_is_behind_its_own_write(cluster: KubernetesCluster, namespace: str) -> None:
    body = scale_request.manifest("ScaleOut", "train", toAdd={"count": 1})
    name = cluster.create(SCALE_OUTS, body, namespace)["metadata"]["name"]
    begun = {"status": {"phase": "Admitted", "startTime": "2026-01-02T03:04:05Z"}}
    old = scale_request_view.trim(cluster.patch(SCALE_OUTS, name, begun, namespace, subresource="status"))
    change = {"metadata": {"finalizers": [labels.SCALE_OUT]}}
    new = scale_request_view.trim(cluster.patch(SCALE_OUTS, old.name, change, namespace))
    reader, key = RequestReader(cluster, Outdated([old])), JobKey(namespace, "train", "uid")
    assert [request.is_held for request in reader.of(key)] == [False]
    reader.wrote({old.uid: scale_request_view.version(new)})
    assert [request.is_held for request in reader.of(key)] == [True]
    cluster.patch(SCALE_OUTS, old.name, {"metadata": {"finalizers": None}}, namespace)
    cluster.delete(SCALE_OUTS, old.name, namespace)
    assert reader.of(key) == ()


def test_reader_lists_requests_that_the_cache_does_not_show(cluster: KubernetesCluster, namespace: str) -> None:
    for name, job in (("first", "train"), ("other", "else"), ("second", "train")):
        body = scale_request.manifest("ScaleIn", job, toDelete={"count": 1}) | {"metadata": {"name": name}}
        cluster.create(SCALE_INS, body, namespace)
    reader, key = RequestReader(cluster, Outdated([])), JobKey(namespace, "train", "uid")
    assert reader.of(key) == ()
    assert [request.name for request in reader.of(key, uncached=True)] == ["first", "second"]


def test_reader_lists_requests_before_one_begins(cluster: KubernetesCluster, namespace: str) -> None:
    """The caches of the two kinds follow the API server independently of each other."""
    shrink = scale_request.manifest("ScaleIn", "train", toDelete={"count": 1}) | {"metadata": {"name": "first"}}
    cluster.create(SCALE_INS, shrink, namespace)
    grow = scale_request.manifest("ScaleOut", "train", toAdd={"count": 1}) | {"metadata": {"name": "second"}}
    second = cluster.create(SCALE_OUTS, grow, namespace)
    key, seen = JobKey(namespace, "train", "uid"), scale_request_view.trim(second)
    assert [each.name for each in RequestReader(cluster, Outdated([seen])).of(key)] == ["first", "second"]
    begun = scale_request_view.trim({**second, "status": {"phase": "Admitted", "startTime": "2026-01-02T03:04:05Z"}})
    assert [each.name for each in RequestReader(cluster, Outdated([begun])).of(key)] == ["second"]
