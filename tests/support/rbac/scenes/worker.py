"""The scenes of a worker's account: caches, pods and the objects that pods need, groups, and events."""

import contextlib
import logging
import time
from dataclasses import replace

from coordinator.rbac.permissions import WORKER
from crds import labels, model_version
from crds.api_resources import (
    EVENTS,
    MODEL_VERSIONS,
    NODES,
    POD_GROUPS,
    PODS,
)
from crds.model_version import ModelVersionSpec, ModelVersionStatus
from crds.torchjob.claims import ClaimReference
from gang import backends
from kube import errors
from reconcilers.apply import events, model_records
from reconcilers.errors import NameTaken
from reconcilers.observe import pods_informer
from reconcilers.values import (
    EmitEvent,
    PatchPodMetadata,
    RecordModel,
)
from reconcilers.views import claimed_devices, pod_view
from reconcilers.views.claimed_devices import ClaimReader
from reconcilers.views.pod_group_view import GroupReader
from reconcilers.views.queue_view import queues_informer
from tests.support.rbac.access import TENANT
from tests.support.rbac.scenes.coordinator import made_for
from tests.support.rbac.scenes.stage import POLICY, Stage, budget, node, only_forbidden, pod, queue, scene, service


@scene(WORKER, "queues", "get")
def _a_group_waits_for_its_queue(stage: Stage) -> str:
    key = stage.job()
    made_for(stage, POD_GROUPS, key)
    sight = GroupReader(stage.access.cluster(WORKER))
    try:
        (found,) = sight.of(key, "volcano")
    except errors.ClusterError as error:
        return str(error)
    assert found.reason == "GangQueueMissing"
    return ""


@scene(WORKER, "events", "list")
def _a_group_is_not_let_in(stage: Stage) -> str:
    key = stage.job()
    made_for(stage, POD_GROUPS, key)
    manifest = stage.admin.get(POD_GROUPS, "train-0", TENANT)
    group = backends.get_backend("volcano").trim({**manifest, "status": {"phase": "Pending"}})
    sight = GroupReader(stage.access.cluster(WORKER), clock=lambda: time.time() + 60.0)
    with stage.log.at_level(logging.INFO, "reconcilers"):
        assert sight.explain(group).phase == "Pending"
    return only_forbidden(stage.log.text)


@scene(WORKER, "modelversions", "get", "create")
def _record_a_model(stage: Stage) -> str:
    """Find the name of a version taken by another job, and take a longer one."""
    key = stage.job()
    spec = ModelVersionSpec(model_name="digits", version=next(model_version.versions(key.uid)), created_by_uid="other")
    stage.admin.create(MODEL_VERSIONS, model_version.manifest(spec, ModelVersionStatus()), TENANT)
    action = RecordModel(spec.model_copy(update={"created_by_uid": key.uid}), ModelVersionStatus())
    refused = model_records.create(stage.access.cluster(WORKER), key, action)
    return "" if refused is None else refused.message


@scene(WORKER, "resourceclaims", "get")
def _a_pods_claim_is_read(stage: Stage) -> str:
    return _claims(stage, ClaimReference("gpus"))


@scene(WORKER, "resourceclaimtemplates", "get")
def _a_template_of_claims_is_read(stage: Stage) -> str:
    return _claims(stage, ClaimReference("eight", is_template=True))


@scene(WORKER, "resourceclaims", "list")
def _many_claims_are_read(stage: Stage) -> str:
    return _claims(stage, *(ClaimReference(f"c{number}") for number in range(claimed_devices.FEW + 1)))


@scene(WORKER, "resourceclaimtemplates", "list")
def _many_templates_are_read(stage: Stage) -> str:
    return _claims(
        stage, *(ClaimReference(f"t{number}", is_template=True) for number in range(claimed_devices.FEW + 1))
    )


def _claims(stage: Stage, *claims: ClaimReference) -> str:
    """Look for the claims of a pod, which need not exist."""
    key = stage.job()
    pod(stage, key)
    found = replace(pod_view.trim(stage.admin.get(PODS, "train-master-0", TENANT)), claims=claims)
    assert ClaimReader(stage.access.cluster(WORKER)).with_devices([found]) == [found]
    return only_forbidden(stage.log.text)


@scene(WORKER, "pods", "patch")
def _a_pods_gate_is_opened(stage: Stage) -> str:
    key = stage.job()
    pod(stage, key)
    found = pod_view.trim(stage.admin.get(PODS, "train-master-0", TENANT))
    return stage.apply(key, PatchPodMetadata((found,), {"annotations": {labels.START: "yes"}}))


@scene(WORKER, "events", "create")
def _a_job_is_told_what_happened(stage: Stage) -> str:
    key = stage.job()
    owned = events.manifest(key, EmitEvent("Running", "it runs"), 0.0, owned=True)
    try:
        stage.access.cluster(WORKER).create(EVENTS, owned, TENANT)
    except errors.ClusterError as error:
        return str(error)
    return stage.apply(key, EmitEvent("Restarting", "a pod failed"))


@scene(WORKER, "nodes", "list", "watch")
def _a_workers_nodes(stage: Stage) -> str:
    node(stage)
    return stage.follow(WORKER, NODES)


@scene(WORKER, "torchjobs", "get")
@scene(WORKER, "torchjobs/status", "patch")
@scene(WORKER, "torchjobs/finalizers", "update")
@scene(WORKER, "pods", "create")
def _a_job_gets_its_pods(stage: Stage) -> str:
    return stage.reconcile(stage.job())


@scene(WORKER, "services", "create")
def _a_job_that_may_grow_gets_its_service(stage: Stage) -> str:
    return stage.reconcile(stage.job(only="Worker", torchElasticPolicy=POLICY))


@scene(WORKER, "torchjobs", "delete")
def _a_job_goes_when_its_time_has_come(stage: Stage) -> str:
    ended = {"phase": "Succeeded", "completionTime": "2026-01-01T00:00:00Z"}
    return stage.reconcile(stage.job(ended, ttlSecondsAfterFinished=0))


@scene(WORKER, "pods", "list", "watch")
def _a_workers_cache(stage: Stage) -> str:
    pod(stage, stage.job())
    return stage.trouble(pods_informer(stage.access.cluster(WORKER)))


@scene(WORKER, "tenantqueues", "list", "watch")
def _a_workers_queues(stage: Stage) -> str:
    queue(stage)
    return stage.trouble(queues_informer(stage.access.cluster(WORKER)))


@scene(WORKER, "pods", "get")
def _a_pods_name_is_taken(stage: Stage) -> str:
    key = stage.job()
    pod(stage)
    with contextlib.suppress(NameTaken):
        return stage.reconcile(key)
    return ""


@scene(WORKER, "pods", "delete")
def _a_suspended_job_has_pods(stage: Stage) -> str:
    key = stage.job(suspend=True)
    pod(stage, key)
    return stage.reconcile(key)


@scene(WORKER, "services", "get")
def _a_service_is_there_already(stage: Stage) -> str:
    key = stage.job(only="Worker", torchElasticPolicy=POLICY)
    service(stage, key)
    return stage.reconcile(key)


@scene(WORKER, "services", "delete")
def _a_service_of_an_earlier_job_is_there(stage: Stage) -> str:
    key = stage.job(only="Worker", torchElasticPolicy=POLICY)
    service(stage)
    return stage.reconcile(key)


@scene(WORKER, "poddisruptionbudgets", "create")
def _a_job_refuses_evictions(stage: Stage) -> str:
    return stage.reconcile(stage.job(evictions="Refuse"))


@scene(WORKER, "poddisruptionbudgets", "get")
def _a_budget_is_there_already(stage: Stage) -> str:
    key = stage.job(evictions="Refuse")
    budget(stage, key)
    return stage.reconcile(key)


@scene(WORKER, "poddisruptionbudgets", "delete")
def _a_budget_of_an_earlier_job_is_there(stage: Stage) -> str:
    key = stage.job(evictions="Refuse")
    budget(stage, stage.job(name="another"))
    return stage.reconcile(key)
