"""The scenes of the coordinator's account: watches, writes and the leader's Lease."""

import contextlib
import logging

from coordinator.cache.watches import Watches
from coordinator.leader.election import LeaderElection, LeaseConfig
from coordinator.leader.queue_statuses import QueueStatuses
from coordinator.leader.reasons import Reasons
from coordinator.leader.status_writer import StatusWriter
from coordinator.rbac.account_manifests import LEASE_NAMESPACE
from coordinator.rbac.permissions import COORDINATOR, LEASE, WORKER
from coordinator.routing.eligibility import Eligibility
from crds import labels
from crds.api_resources import (
    GANG_QUEUES,
    LEASES,
    POD_GROUPS,
    RECREATE_REQUESTS,
    RESOURCE_QUOTAS,
    Resource,
)
from crds.keys import JobKey
from kube import errors
from kube.api import Manifest
from queues.rules import PickRules
from reconcilers.values import (
    CreateObject,
    DeleteObject,
    PatchObject,
)
from tests.support.acceptance.stack import until
from tests.support.rbac.access import TENANT
from tests.support.rbac.gatekeeper import resource_name
from tests.support.rbac.scenes.stage import OTHERS, Nothing, Stage, node, owner, pod, queue, review, scene


@scene(COORDINATOR, "torchjobs", "list", "watch")
def _jobs_are_followed(stage: Stage) -> str:
    stage.job()
    return stage.trouble(Watches(stage.access.cluster(COORDINATOR), nodes=False).jobs)


@scene(COORDINATOR, "torchjobs", "get")
def _jobs_are_read_again(stage: Stage) -> str:
    key = stage.job()
    try:
        Watches(stage.access.cluster(COORDINATOR), nodes=False).read(key)
    except errors.ClusterError as error:
        return str(error)
    return ""


@scene(COORDINATOR, "tenantqueues", "list", "watch")
def _queues_are_followed(stage: Stage) -> str:
    queue(stage)
    return stage.trouble(Watches(stage.access.cluster(COORDINATOR), nodes=False).queues)


@scene(COORDINATOR, "priorityclasses", "list", "watch")
def _priority_classes_are_followed(stage: Stage) -> str:
    return stage.trouble(Watches(stage.access.cluster(COORDINATOR), nodes=False).rule_watches.classes)


@scene(COORDINATOR, "namespaces", "list", "watch")
def _namespaces_are_followed(stage: Stage) -> str:
    return stage.trouble(Watches(stage.access.cluster(COORDINATOR), nodes=False).rule_watches.namespaces)


@scene(COORDINATOR, "resourcequotas", "list", "watch")
def _resource_quotas_are_followed(stage: Stage) -> str:
    body = {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "team"}}
    stage.admin.create(RESOURCE_QUOTAS, body | {"spec": {"hard": {"pods": "4"}}}, TENANT)
    return stage.trouble(Watches(stage.access.cluster(COORDINATOR), nodes=False).rule_watches.quotas)


@scene(COORDINATOR, "pods", "list", "watch")
def _pods_are_followed(stage: Stage) -> str:
    pod(stage)
    return stage.trouble(Watches(stage.access.cluster(COORDINATOR), nodes=False).pods)


@scene(COORDINATOR, "nodes", "list", "watch")
def _nodes_are_followed(stage: Stage) -> str:
    node(stage)
    nodes = Watches(stage.access.cluster(COORDINATOR), nodes=True).nodes
    assert nodes is not None
    return stage.trouble(nodes)


@scene(COORDINATOR, "tenantqueues/status", "patch")
def _queues_say_how_they_do(stage: Stage) -> str:
    queue(stage)
    stage.job()
    cluster = stage.access.cluster(COORDINATOR)
    watches = Watches(stage.admin, nodes=False)
    with contextlib.ExitStack() as running, stage.log.at_level(logging.WARNING):
        for informer in watches.informers:
            running.enter_context(informer)
        until(lambda: watches.synced)
        writer = StatusWriter(cluster, watches, lambda: 1)
        figures = QueueStatuses(writer.queues, watches)
        for _ in range(3):
            figures.look()
            writer.step()
    assert len(stage.log.records) <= 1, "the error is logged once"
    return stage.log.text


@scene(COORDINATOR, "torchjobs/status", "patch")
def _jobs_say_why_they_wait(stage: Stage) -> str:
    key = stage.job()
    watches = Watches(stage.admin, nodes=False)
    writer = StatusWriter(stage.access.cluster(COORDINATOR), watches, lambda: 1)
    reasons = Reasons(writer.reasons, watches, Nothing(), PickRules(), after=1.0)  # type: ignore[arg-type]
    with watches.jobs, stage.log.at_level(logging.WARNING):
        until(lambda: watches.job(key) is not None)
        for _ in range(3):
            job = watches.job(key)
            assert job is not None
            reasons.note(job, Eligibility("Held", "held back by its owner"))
            writer.step()
    assert len(stage.log.records) <= 1, "the error is logged once"
    return stage.log.text


def leadership(stage: Stage, times: int) -> str:
    leader = LeaderElection(
        stage.access.cluster(COORDINATOR),
        LeaseConfig("me", LEASE_NAMESPACE, lease_seconds=15.0, renew_deadline=10.0, renew_seconds=2.0),
    )
    try:
        for _ in range(times):
            leader.step()
    except errors.ClusterError as error:
        return str(error)
    return ""


@scene(COORDINATOR, "leases", "create")
def _the_lease_is_made(stage: Stage) -> str:
    return leadership(stage, 1)


@scene(COORDINATOR, "leases", "get", "patch")
def _the_lease_is_taken_and_kept(stage: Stage) -> str:
    body = {"apiVersion": LEASES.api_version, "kind": LEASES.kind, "metadata": {"name": LEASE}, "spec": {}}
    stage.admin.create(LEASES, body, LEASE_NAMESPACE)
    return leadership(stage, 2)


def foreign_object(resource: Resource, key: JobKey) -> Manifest:
    metadata = {
        "name": "train-0",
        "labels": {labels.JOB_UID: key.uid, labels.JOB_NAME: key.name},
        "annotations": {labels.POD_UID: key.uid},  # the uid of the job stands for the uid of a pod
        "ownerReferences": [owner(key)],
    }
    return {"apiVersion": resource.api_version, "kind": resource.kind, "metadata": metadata}


def made_for(stage: Stage, resource: Resource, key: JobKey) -> str:
    """Create such an object for a job, and return the uid of the object."""
    made = stage.admin.create(resource, foreign_object(resource, key), TENANT)
    return str(made["metadata"]["uid"])


@scene(COORDINATOR, "tokenreviews", "create")
@scene(COORDINATOR, "subjectaccessreviews", "create")
def _look_who_asks(stage: Stage) -> str:
    return review(stage, COORDINATOR)


def foreign_scenes(resource: Resource) -> None:
    """Define the scenes of a foreign kind."""
    target = resource_name(resource.group, resource.plural)

    @scene(COORDINATOR, target, "list", "watch")
    def _is_followed(stage: Stage) -> str:
        made_for(stage, resource, stage.job())
        watches = Watches(stage.access.cluster(COORDINATOR), nodes=False, foreign=[resource])
        return stage.trouble(watches._foreign_informer(resource))

    @scene(WORKER, target, "list", "watch")
    def _a_workers_own(stage: Stage) -> str:
        made_for(stage, resource, stage.job())
        return stage.follow(WORKER, resource)

    @scene(WORKER, target, "create")
    def _is_made(stage: Stage) -> str:
        key = stage.job()
        return stage.apply(key, CreateObject(resource, foreign_object(resource, key)))

    @scene(WORKER, target, "get")
    def _is_there_already(stage: Stage) -> str:
        key = stage.job()
        made_for(stage, resource, key)
        return stage.apply(key, CreateObject(resource, foreign_object(resource, key)))

    @scene(WORKER, target, "delete")
    def _is_not_needed_any_more(stage: Stage) -> str:
        key = stage.job()
        return stage.apply(key, DeleteObject(resource, "train-0", made_for(stage, resource, key)))

    if resource is not RECREATE_REQUESTS:

        @scene(WORKER, target, "patch")
        def _is_resized(stage: Stage) -> str:
            key = stage.job()
            made_for(stage, resource, key)
            return stage.apply(key, PatchObject(resource, "train-0", {"spec": {"minMember": 2}}))


for kind in OTHERS:
    foreign_scenes(kind)


@scene(COORDINATOR, "queues", "list", "watch")
def _queues_of_the_gang_scheduler_are_followed(stage: Stage) -> str:
    watches = Watches(stage.access.cluster(COORDINATOR), nodes=False, foreign=[POD_GROUPS])
    return stage.trouble(watches.gang_queues._queue_informer(GANG_QUEUES))
