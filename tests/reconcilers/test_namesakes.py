"""Objects that replace other objects of the same name while a plan for the old objects is carried out."""

from concurrent.futures import ThreadPoolExecutor

from crds.api_resources import PODS, SERVICES
from crds.keys import JobKey
from kube.client import KubernetesCluster
from reconcilers.apply.apply import Application, Outcome
from reconcilers.reconcile import no_store
from reconcilers.settings import ReconcileSettings
from reconcilers.values import DeleteService, PatchObject, PatchPodMetadata, Plan
from reconcilers.views import pod_view
from tests.support.reconcilers.builders import left_over

POD = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {"name": "digits-worker-0"},
    "spec": {"containers": [{"name": "torch", "image": "none"}]},
}
MARKED = {"annotations": {"marked": "yes"}}


def test_patch_for_replaced_pod_is_refused_and_job_is_requeued(cluster: KubernetesCluster, namespace: str) -> None:
    old = pod_view.trim(cluster.create(PODS, POD, namespace))
    key = JobKey(namespace, "digits", "uid-1")
    with ThreadPoolExecutor(1) as executor:

        def applied(*actions: PatchPodMetadata | PatchObject) -> Outcome:
            made = Application(cluster, ReconcileSettings(), executor, lambda: 0.0, key, lambda: True, no_store)
            return made.run(Plan(actions))

        marks = PatchPodMetadata((old,), MARKED)
        assert applied(marks) == Outcome(None)
        assert cluster.get(PODS, old.name, namespace)["metadata"]["annotations"] == MARKED["annotations"]
        cluster.delete(PODS, old.name, namespace, grace_period_seconds=0)
        cluster.create(PODS, POD, namespace)
        again = Outcome(ReconcileSettings().name_retry)
        assert applied(marks, marks) == again
        assert applied(PatchObject(PODS, old.name, {"metadata": {**MARKED, "uid": old.uid}})) == again
    assert "annotations" not in cluster.get(PODS, old.name, namespace)["metadata"]


def test_service_without_owner_reference_is_not_deleted(cluster: KubernetesCluster, namespace: str) -> None:
    key, spec = JobKey(namespace, "digits", "uid-1"), {"clusterIP": "None", "ports": [{"port": 1}]}
    for name, owned in (("strange", False), ("ours", True)):
        body = {"apiVersion": "v1", "kind": "Service", "metadata": left_over(name, key.uid, owned=owned), "spec": spec}
        cluster.create(SERVICES, body, namespace)
    with ThreadPoolExecutor(1) as executor:
        made = Application(cluster, ReconcileSettings(), executor, lambda: 0.0, key, lambda: True, no_store)
        made.run(Plan((DeleteService("strange"), DeleteService("ours"))))
    going = [each["metadata"]["name"] for each in cluster.list(SERVICES, namespace).items
             if "deletionTimestamp" in each["metadata"]]  # fmt: skip
    assert going == ["ours"]
