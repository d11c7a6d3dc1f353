"""A pod that a worker deleted on purpose does not count as lost."""

from dataclasses import replace
from typing import Any

from coordinator.settings import Settings
from coordinator.worker.caches import WorkerCaches
from crds import labels
from crds.api_resources import PODS, TORCHJOBS
from crds.keys import JobKey
from kube.client import KubernetesCluster
from reconcilers.plan.plan import plan
from reconcilers.settings import ReconcileSettings
from reconcilers.values import CreatePods, EmitEvent, WriteStatus
from reconcilers.views.pod_view import PodView
from tests.support.reconcilers.builders import NOW, job, observe, pod, status
from tests.support.waiting import until

CONTAINER = {"name": "torch", "image": "x", "command": ["true"]}
COUNTS = {"Master": {"active": 1, "ready": 1}, "Worker": {"active": 2, "ready": 2}}


def after(replacing: list[str], *missing: str) -> tuple[dict[str, Any], list[str]]:
    """Return the status change of a running job without the missing pods, and the names of the pods created."""
    running = job(status=status("Running", taskStatuses=COUNTS, replacing=replacing))
    there = [each for each in (pod("Master"), pod("Worker", 0), pod("Worker", 1)) if each.uid not in missing]
    decided = plan(observe(running, *there), ReconcileSettings(master_address="loopback"), NOW)
    written: dict[str, Any] = {}
    made: list[str] = []
    for action in decided.actions:
        match action:
            case WriteStatus(change, _):
                written |= change["status"]
            case CreatePods(manifests):
                made += [each["metadata"]["name"] for each in manifests]
    return written, made


def test_requested_replacement_is_created_alone() -> None:
    written, made = after(["worker-0"], "worker-0")
    assert written.get("disruptions", 0) == 0
    assert "restartGeneration" not in written
    assert made == ["digits-worker-0"]


def test_loss_beside_requested_replacement_is_a_disruption() -> None:
    written, _ = after(["worker-0"], "worker-0", "worker-1")
    assert (written["disruptions"], written["restartGeneration"]) == (1, 1)


def test_loss_without_request_is_a_disruption() -> None:
    written, _ = after([], "worker-0")
    assert (written["disruptions"], written["restartGeneration"]) == (1, 1)


def test_replacement_still_to_come_does_not_excuse_other_loss() -> None:
    written, _ = after(["worker-1"], "worker-0")
    assert written["disruptions"] == 1


def told(*gone: PodView) -> str:
    """Return the messages of a running job about the loss of its first worker. `gone` is what the watch has seen of
    this worker.
    """
    running = job(status=status("Running", taskStatuses=COUNTS))
    seen = replace(observe(running, pod("Master"), pod("Worker", 1)), gone=gone)
    decided = plan(seen, ReconcileSettings(master_address="loopback"), NOW)
    return " ".join(action.message for action in decided.actions if isinstance(action, EmitEvent))


def test_eviction_that_was_over_before_a_reconcile_could_look_is_called_one() -> None:
    seen = pod("Worker", 0, deleting=True, disruption="EvictionByEvictionAPI: Eviction API: evicting")
    assert "pod digits-worker-0 was deleted (EvictionByEvictionAPI): Eviction API: evicting" in told(seen)
    assert "was deleted without a grace period" in told()
    assert "was deleted without a grace period" in told(replace(seen, attempt=0)), "the pod was a pod of another run"


def test_caches_of_a_worker_keep_what_was_seen_of_a_pod_that_has_gone(
    cluster: KubernetesCluster, namespace: str
) -> None:
    caches = WorkerCaches(cluster, Settings())
    owner = {"apiVersion": TORCHJOBS.api_version, "kind": TORCHJOBS.kind, "name": "j", "uid": "u", "controller": True}
    metadata = {"name": "j-worker-0", "labels": {labels.JOB_UID: "u", labels.JOB_NAME: "j"}, "ownerReferences": [owner]}
    body = {"metadata": {**metadata, "finalizers": ["example.org/keep"]}, "spec": {"containers": [CONTAINER]}}
    with caches.pods as pods:
        cluster.create(PODS, {"apiVersion": "v1", "kind": "Pod", **body}, namespace)
        cluster.delete(PODS, "j-worker-0", namespace)
        until(lambda: [each.deleting for each in pods.indexed("u")] == [True])
        cluster.patch(PODS, "j-worker-0", {"metadata": {"finalizers": None}}, namespace)
        until(lambda: not pods.indexed("u"))
    gone = caches.reconcile_caches.gone_pods
    assert gone is not None
    assert [(each.name, each.deleting) for each in gone.of(JobKey(namespace, "j", "u"))] == [("j-worker-0", True)]
    assert gone.of(JobKey("another", "j", "u")) == ()
