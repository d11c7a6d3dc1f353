"""Objects that the API server fails to create, because of a webhook or a conversion; the tests act as the node."""

import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import pytest

from coordinator.rbac.permissions import WORKER
from crds import labels
from crds.api_resources import (
    EVENTS,
    POD_DISRUPTION_BUDGETS,
    POD_GROUPS,
    PODS,
    RECREATE_REQUESTS,
    SERVICES,
    TORCHJOBS,
    Resource,
)
from kube import errors
from kube.client import KubernetesCluster
from kube.informer import Informer
from reconcilers.observe import Caches, pods_informer
from reconcilers.reconcile import Reconciler
from reconcilers.settings import ReconcileSettings
from reconcilers.views.recreate_request import RecreateView, recreations_informer
from tests.reconcilers.conftest import benches
from tests.support.coordinator import kinds
from tests.support.rbac.gatekeeper import Gatekeeper
from tests.support.reconcilers import recreate_requests
from tests.support.reconcilers.bench import Bench, Counting
from tests.support.reconcilers.builders import task
from tests.support.waiting import SECONDS, until

WORDS = "failed calling webhook: dial tcp 10.0.0.7:443: connect: connection refused"
ASK = "create ContainerRecreateRequest"
WRITE = "patch TorchJob"
FAILURES = [errors.ServerError(WORDS), errors.TooManyRequests(WORDS), errors.Unreachable(WORDS)]


@dataclass
class Kruise(Bench):
    """A bench whose clock a test may set ahead."""

    ahead: list[float] = field(default_factory=lambda: [0.0])
    requests: Informer[RecreateView] | None = None

    def run(self, restarts: int = 0) -> None:
        """Report that all pods run, as the node does."""
        running = {"running": {"startedAt": "2026-01-02T03:04:05Z"}}
        container = {"name": "torch", "image": "", "imageID": "", "ready": True, "restartCount": restarts}
        status = {"phase": "Running", "containerStatuses": [container | {"state": running}]}
        for name in self.names():
            self.cluster.patch(PODS, name, {"status": status}, self.namespace, subresource="status")

    def begins(self) -> set[str]:
        """Run a job, and return the uids of its pods."""
        self.submit({"Master": task()})
        self.pick()
        self.reconcile()
        self.run()
        self.reconcile()
        assert self.job.status.phase == "Running"
        return self.uids()

    def ask(self, request: str) -> None:
        """Request a restart, as the owner does."""
        note = {"metadata": {"annotations": {labels.RESTART_REQUEST: request}}}
        self.cluster.patch(TORCHJOBS, "digits", note, self.namespace)

    def sees(self, version: int) -> None:
        """Wait until the cache of requests has reached a version."""
        assert self.requests is not None
        assert self.requests.wait_for(version, SECONDS)

    def uids(self) -> set[str]:
        return {self.cluster.get(PODS, name, self.namespace)["metadata"]["uid"] for name in self.names()}

    def told(self) -> dict[str, str]:
        return {each["reason"]: each["message"] for each in self.cluster.list(EVENTS, self.namespace).items}


@pytest.fixture
def kruise(cluster: KubernetesCluster, namespace: str) -> Iterator[Kruise]:
    recreate_requests.install(cluster)
    counting, ahead = Counting(Gatekeeper(cluster, WORKER, strict=True)), [0.0]
    settings = ReconcileSettings(
        admission_timeout=0.0, most_seconds=60.0, in_place="kruise", served=frozenset({RECREATE_REQUESTS})
    )
    with pods_informer(cluster) as pods, recreations_informer(cluster) as requests:
        assert pods.wait_synced(SECONDS)
        assert requests.wait_synced(SECONDS)
        caches = Caches(recreations=requests)
        with Reconciler(counting, pods, settings, lambda: time.time() + ahead[0], caches=caches) as reconciler:
            yield Kruise(cluster, counting, namespace, pods, reconciler, ahead=ahead, requests=requests)


@pytest.mark.parametrize("failure", FAILURES, ids=lambda failure: type(failure).__name__)
def test_failing_request_is_reported_once_and_made_again_with_pauses(kruise: Kruise, failure: Exception) -> None:
    before = kruise.begins()
    kruise.ask('{"id": "a"}')
    kruise.counting.failing[ASK] = failure
    assert kruise.reconcile() == 1.0
    reason, message = kruise.true_condition("Admitted")
    assert (reason, WORDS in message) == ("ContainerRecreateRequestNotCreated", True)
    kruise.counting.calls.clear()
    kruise.counting.failing[ASK] = errors.ServerError(WORDS.replace("443", "8443"))
    pauses = []
    for kruise.ahead[0] in (10.0, 30.0, 50.0):
        pauses.append(kruise.reconcile() or 0.0)
    assert pauses == pytest.approx([10.0, 30.0, 10.0], abs=3.0)  # the last pause ends with the time for a restart
    assert (kruise.counting.calls[ASK], kruise.counting.calls[WRITE], kruise.uids()) == (3, 0, before)


def test_request_that_succeeds_in_the_end_restarts_the_pod_in_place(kruise: Kruise) -> None:
    before = kruise.begins()
    kruise.ask('{"id": "a"}')
    kruise.counting.failing[ASK] = errors.ServerError(WORDS)
    kruise.reconcile(times=2)
    kruise.counting.failing.clear()
    kruise.reconcile()
    (request,) = kruise.cluster.list(RECREATE_REQUESTS, kruise.namespace).items
    kruise.run(restarts=1)
    kruise.sees(recreate_requests.finish(kruise.cluster, kruise.namespace, request["metadata"]["name"]))
    kruise.reconcile(times=3)
    status = kruise.job.status
    assert (status.phase, status.blocked_since, kruise.uids()) == ("Running", None, before)
    assert kruise.true_condition("Admitted")[0] == "Running"


@pytest.mark.parametrize("request_text", ['{"id": "a"}', '{"id": "a", "task": "Master"}'])
def test_pod_is_replaced_when_requests_fail_for_longer_than_a_restart_may_take(
    kruise: Kruise, request_text: str
) -> None:
    before = kruise.begins()
    kruise.ask(request_text)
    kruise.counting.failing[ASK] = errors.ServerError(WORDS)
    kruise.reconcile()
    kruise.ahead[0] = 61.0
    kruise.reconcile(times=3)
    assert kruise.names() == ["digits-master-0"]
    assert not kruise.uids() & before
    assert WORDS in kruise.told()["NotRestartedInPlace"]
    kruise.run()
    kruise.reconcile()
    assert (kruise.job.status.phase, kruise.job.status.restart_count) == ("Running", 0)
    assert kruise.true_condition("Admitted")[0] == "Running"


def test_request_that_cannot_be_deleted_holds_nothing_up(kruise: Kruise) -> None:
    kruise.begins()
    kruise.sees(orphan(kruise))
    kruise.counting.failing["delete ContainerRecreateRequest"] = errors.ServerError(WORDS)
    kruise.remove("digits-master-0")
    kruise.reconcile(times=3)
    assert kruise.counting.calls["delete ContainerRecreateRequest"] > 0
    assert kruise.names() == ["digits-master-0"]


def orphan(bench: Bench) -> int:
    """Create a request for a pod that no longer exists, and return its resourceVersion. The job owns the request, so
    that no garbage collection deletes it.
    """
    job = {"apiVersion": TORCHJOBS.api_version, "kind": TORCHJOBS.kind, "name": "digits", "uid": bench.key.uid}
    metadata = {
        "name": "digits-master-0-9",
        "labels": {labels.JOB_UID: bench.key.uid, labels.RESTART: "0"},
        "annotations": {labels.POD_UID: bench.key.uid},
        "ownerReferences": [job],
    }
    body = {"apiVersion": RECREATE_REQUESTS.api_version, "kind": RECREATE_REQUESTS.kind, "metadata": metadata}
    spec = {"podName": "digits-master-0", "containers": [{"name": "torch"}]}
    made = bench.cluster.create(RECREATE_REQUESTS, {**body, "spec": spec}, bench.namespace)
    return int(made["metadata"]["resourceVersion"])


@pytest.mark.parametrize("kind", ["Pod", "Service"])
def test_pods_are_made_once_the_api_server_no_longer_fails(bench: Bench, kind: str) -> None:
    bench.submit()
    bench.pick()
    bench.counting.failing[f"create {kind}"] = errors.ServerError(WORDS)
    with pytest.raises(errors.ServerError):
        bench.reconcile()
    reason, message = bench.true_condition("Admitted")
    assert (reason, WORDS in message) == (f"{kind}NotCreated", True)
    bench.counting.calls.clear()
    bench.counting.failing[f"create {kind}"] = errors.ServerError(f"{WORDS} again")
    with pytest.raises(errors.ServerError):
        bench.reconcile()
    assert bench.counting.calls[WRITE] == 0
    bench.counting.failing.clear()
    bench.reconcile(times=3)
    assert len(bench.names()) == 3
    assert bench.true_condition("Admitted")[0] == "Admitted"
    assert bench.job.status.blocked_since is None


def test_group_that_cannot_be_created_is_reported_with_the_words(cluster: Any, namespace: str) -> None:
    kinds.install_gangs(cluster)
    for gang in benches(cluster, namespace, gang_scheduler="volcano"):
        gang.submit()
        gang.pick()
        gang.counting.failing["create PodGroup"] = errors.ServerError(WORDS)
        with pytest.raises(errors.ServerError):
            gang.reconcile()
        reason, message = gang.true_condition("Admitted")
        assert (reason, WORDS in message) == ("PodGroupNotCreated", True)
        gang.counting.failing.clear()
        gang.reconcile(times=2)
        assert gang.true_condition("Admitted")[0] == "Admitted"


WEBHOOKS = Resource(
    "admissionregistration.k8s.io",
    "v1",
    "validatingwebhookconfigurations",
    "ValidatingWebhookConfiguration",
    namespaced=False,
)


@contextmanager
def webhook_that_is_down(cluster: Any, namespace: str, resource: Resource) -> Iterator[None]:
    """Register a webhook that no server serves. The API server calls it before it creates objects of this kind in a
    namespace.
    """
    rule = {
        "apiGroups": [resource.group],
        "apiVersions": ["*"],
        "resources": [resource.plural],
        "operations": ["CREATE"],
    }
    webhook = {
        "name": "down.example.org",
        "clientConfig": {"url": "https://127.0.0.1:1/check"},
        "rules": [rule],
        "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": namespace}},
        "admissionReviewVersions": ["v1"],
        "sideEffects": "None",
    }
    kind = {"apiVersion": WEBHOOKS.api_version, "kind": WEBHOOKS.kind}
    cluster.create(WEBHOOKS, {**kind, "metadata": {"name": namespace}, "webhooks": [webhook]})
    try:
        yield
    finally:
        cluster.delete(WEBHOOKS, namespace)


@pytest.mark.parametrize("resource", [POD_GROUPS, POD_DISRUPTION_BUDGETS, SERVICES, PODS], ids=lambda kind: kind.kind)
def test_webhook_that_is_down_is_the_reason_of_the_job(cluster: Any, namespace: str, resource: Resource) -> None:
    if not cluster.serves(WEBHOOKS):
        pytest.skip("the embedded server asks no webhooks")
    kinds.install_gangs(cluster)
    for bench in benches(cluster, namespace, gang_scheduler="volcano" if resource == POD_GROUPS else "none"):
        bench.submit(evictions="Refuse")
        bench.pick()
        with webhook_that_is_down(cluster, namespace, resource):
            until(partial(tried, bench), f"{resource.kind}NotCreated".__eq__)
            assert "failed calling webhook" in bench.true_condition("Admitted")[1]


def tried(bench: Bench) -> str:
    """Reconcile a job, and return the reason of its condition. The API server may learn late of a webhook."""
    for name in bench.names():
        bench.remove(name)
    for resource in (POD_GROUPS, POD_DISRUPTION_BUDGETS, SERVICES):
        for item in bench.cluster.list(resource, bench.namespace).items:
            bench.cluster.delete(resource, item["metadata"]["name"], bench.namespace)
    with suppress(errors.ServerError):
        bench.reconcile()
    return bench.true_condition("Admitted")[0]
