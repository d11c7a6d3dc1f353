"""The devices of resource claims: what the API server stores, and the charge that follows from it."""

from collections import Counter
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from crds.api_resources import RESOURCE_CLAIM_TEMPLATES, RESOURCE_CLAIMS, Resource
from crds.torchjob.claims import ClaimReference
from crds.torchjob.torchjob import TorchJob
from kube import errors
from kube.api import Listing, Manifest
from reconcilers.observe import Observer
from reconcilers.plan.plan import plan
from reconcilers.settings import ReconcileSettings
from reconcilers.values import CreatePods, Observation, Plan, RaiseCharge, WriteStatus
from reconcilers.views import claimed_devices
from reconcilers.views.claimed_devices import ClaimReader
from tests.support.reconcilers.builders import ADMISSION, NOW, job, manifest, observe, pod, status, task, template

CLASS = "gpu.example.com.deviceclass.resource.k8s.io/devices"
CHARGED = {"jobs": 1, "pods": 3, "cpu": 3000}


def request(count: int) -> dict[str, Any]:
    exactly = {"deviceClassName": "gpu.example.com", "allocationMode": "ExactCount", "count": count}
    return {"devices": {"requests": [{"name": "gpus", "exactly": exactly}]}}


@dataclass
class Claims:
    """The claims and templates of a namespace, as an API server answers for them."""

    stored: dict[tuple[Resource, str], dict[str, Any]] = field(default_factory=dict)
    refused: bool = False
    calls: Counter[str] = field(default_factory=Counter)

    def claim(self, name: str, count: int) -> None:
        self.stored[RESOURCE_CLAIMS, name] = {"metadata": {"name": name}, "spec": request(count)}

    def template(self, name: str, count: int) -> None:
        self.stored[RESOURCE_CLAIM_TEMPLATES, name] = {"metadata": {"name": name}, "spec": {"spec": request(count)}}

    def get(self, resource: Resource, name: str, namespace: str) -> Manifest:
        self.calls["get"] += 1
        if self.refused:
            raise errors.Forbidden("no right")
        assert namespace
        if (resource, name) not in self.stored:
            raise errors.NotFound(name)
        return self.stored[resource, name]

    def list(self, resource: Resource, namespace: str) -> Listing:
        assert namespace
        self.calls["list"] += 1
        return Listing([each for (kind, _), each in self.stored.items() if kind == resource], "1")


@pytest.fixture
def cluster() -> Claims:
    return Claims()


@pytest.fixture
def reader(cluster: Claims) -> ClaimReader:
    return ClaimReader(cluster)  # type: ignore[arg-type]


SPEC = template()["spec"] | {"resourceClaims": [{"name": "gpus", "resourceClaimTemplateName": "eight"}]}
TASKS = {"Master": task(), "Worker": task(2, template={"spec": SPEC}, dependsOn=[])}
MANIFEST = manifest(TASKS)


def claiming(**fields: Any) -> TorchJob:
    """Return a job of whose two workers each has a claim from the template `eight`."""
    return job(TASKS, **fields)


def counted(found: TorchJob) -> dict[str, Any]:
    return {"templates": found.spec.digest, "pods": {"Worker": {CLASS: 8}}, "claims": True}


def test_templates_of_a_job_are_counted_by_task(cluster: Claims, reader: ClaimReader) -> None:
    cluster.template("eight", 8)
    assert reader.of_templates(claiming()) == {"Master": {}, "Worker": {CLASS: 8}}


def test_claims_that_cannot_be_read_are_not_counted(cluster: Claims, reader: ClaimReader) -> None:
    assert reader.of_templates(claiming()) is None
    cluster.template("eight", 8)
    cluster.refused = True
    assert reader.of_templates(claiming()) is None
    assert reader.with_devices([pod(claims=(ClaimReference("x"),))]) == [pod(claims=(ClaimReference("x"),))]


def test_claims_of_pods_are_read_until_the_pods_are_on_nodes(cluster: Claims, reader: ClaimReader) -> None:
    pending = pod(requests=(("cpu", 1000),), claims=(ClaimReference("shared"),))
    cluster.claim("shared", 1)
    assert reader.with_devices([pending])[0].requests == (("cpu", 1000), (CLASS, 1))
    cluster.claim("shared", 8)  # its owner has made another one of this name
    placed = replace(pending, node="n1")
    assert reader.with_devices([placed])[0].requests == (("cpu", 1000), (CLASS, 8))
    reads = cluster.calls.total()
    assert reader.with_devices([placed])[0].requests == (("cpu", 1000), (CLASS, 8))
    assert cluster.calls.total() == reads


def test_many_claims_cost_one_request(cluster: Claims, reader: ClaimReader) -> None:
    pods = [pod("Worker", index, claims=(ClaimReference(f"c{index}"),)) for index in range(claimed_devices.FEW + 1)]
    for index in range(len(pods)):
        cluster.claim(f"c{index}", index + 1)
    assert [dict(each.requests)[CLASS] for each in reader.with_devices(pods)] == [1, 2, 3, 4, 5]
    assert cluster.calls == {"list": 1}


def test_many_templates_of_one_pod_cost_one_request(cluster: Claims, reader: ClaimReader) -> None:
    names = [f"t{index}" for index in range(1_000)]
    for name in names:
        cluster.template(name, 1)
    hostile = pod(claims=tuple(ClaimReference(name, is_template=True) for name in names))
    assert reader.with_devices([hostile])[0].requests == ((CLASS, 1_000),)
    assert cluster.calls == {"list": 1}


def test_pods_without_claims_cost_no_request(cluster: Claims, reader: ClaimReader) -> None:
    assert reader.with_devices([pod()]) == [pod()]
    assert not cluster.calls


def test_claims_that_this_process_has_counted_are_not_counted_again(cluster: Claims) -> None:
    cluster.template("eight", 8)
    observer = Observer(cluster, None, ReconcileSettings())  # type: ignore[arg-type]
    seen = observe(claiming(), reservation=None, claimed={"Worker": {CLASS: 8}})
    for written, is_counted in ((status("Queued"), False), (status("Queued", measured=counted(claiming())), True)):
        after = observer.after(seen, {**MANIFEST, "status": written}, None)
        assert after is not None
        assert (after.claimed is None) is is_counted


class TestPlan:
    def decide(self, observation: Observation) -> Plan:
        return plan(observation, ReconcileSettings(), NOW)

    def change(self, found: Plan) -> dict[str, Any]:
        (written,) = (each.change["status"] for each in found.actions if isinstance(each, WriteStatus))
        return dict(written)

    def test_devices_are_recorded_while_the_job_waits(self) -> None:
        found = self.decide(observe(claiming(), reservation=None, claimed={"Master": {}, "Worker": {CLASS: 8}}))
        after = self.change(found)
        assert (after["phase"], after["measured"]) == ("Queued", counted(claiming()))
        known = claiming(status=status("Queued", measured=counted(claiming())))
        assert known.charge == {**CHARGED, CLASS: 16}
        assert known.uncounted_claims == ""

    def test_claims_of_edited_templates_are_counted_anew(self) -> None:
        known = claiming(status=status("Queued", measured={**counted(claiming()), "templates": "0"}))
        assert known.uncounted_claims

    def test_no_pod_is_made_before_the_job_is_charged_for_its_devices(self) -> None:
        claimed = {"Master": {}, "Worker": {CLASS: 8}}
        admits = self.decide(observe(claiming(), claimed=claimed))
        assert not any(isinstance(each, CreatePods) for each in admits.actions)
        found = self.decide(observe(claiming(status=status("Admitted")), claimed=claimed))
        assert found.actions[0] == RaiseCharge(1, {**CHARGED, CLASS: 16})
        assert self.change(found)["measured"] == counted(claiming())
        raised = status("Admitted", measured=counted(claiming()))
        raised["admission"] = {**ADMISSION, "charge": {**CHARGED, CLASS: 16}}
        after = self.decide(observe(claiming(status=raised)))
        assert any(isinstance(each, CreatePods) for each in after.actions)

    def test_claims_without_devices_are_counted_once(self) -> None:
        found = self.decide(observe(claiming(status=status("Admitted")), claimed={"Master": {}, "Worker": {}}))
        assert self.change(found)["measured"] == {**counted(claiming()), "pods": {}}

    def test_claim_that_a_webhook_adds_is_charged_as_a_larger_pod(self) -> None:
        found = self.decide(observe(job(status=status("Admitted")), pod(), pod("Worker", requests=((CLASS, 8),))))
        assert found.actions[0] == RaiseCharge(1, {**CHARGED, CLASS: 16})
