"""Pods whose labels a user changes: the job that has lost such a pod is routed again."""

from types import SimpleNamespace
from typing import Any

from coordinator.cache.watches import Watches
from crds import labels
from crds.keys import JobKey
from kube.api import WatchEvent
from tests.support.clock import Clock

OWNER = {"apiVersion": "train.distributed.io/v1alpha1", "kind": "TorchJob", "name": "train", "controller": True}


def show(seen: Watches, version: int, **pod_labels: str) -> None:
    metadata = {"namespace": "team", "name": "train-worker-0", "uid": "p0", "resourceVersion": str(version)}
    metadata |= {"ownerReferences": [OWNER | {"uid": "u1"}], "labels": pod_labels}
    seen.pods._reflector._sink.apply(WatchEvent("MODIFIED", {"metadata": metadata, "spec": {"containers": []}}))


def test_a_job_is_routed_when_its_pod_no_longer_names_it() -> None:
    server: Any = SimpleNamespace(serves=bool)
    seen, key = Watches(server, nodes=False, clock=Clock()), JobKey("team", "train", "u1")
    show(seen, 1, **{labels.JOB_UID: "u1", labels.JOB_NAME: "train"})
    assert seen.job_pods(key)
    assert [found.key for found in seen.take(10)] == [key]
    show(seen, 2)
    assert not seen.job_pods(key)
    assert [found.key for found in seen.take(10)] == [key]
