"""The scenes of queue admins and of the doctor."""

from coordinator.doctor.collect import Collector
from coordinator.leader import rebuild_request
from coordinator.rbac.account_manifests import LEASE_NAMESPACE, SYSTEM_NAMESPACE
from coordinator.rbac.permissions import (
    DOCTOR,
    LEASE,
    QUEUE_ADMIN,
    READER,
    RECORDER_LEASE,
    RECORDER_SERVICE,
    proxied,
)
from crds.api_resources import (
    LEASES,
    TENANT_QUEUES,
    TORCHJOBS,
)
from kube import errors
from tests.support.rbac.access import TENANT
from tests.support.rbac.scenes.stage import Nothing, Stage, announce_recorder, only_forbidden, queue, scene


@scene(QUEUE_ADMIN, "tenantqueues", "create")
def _create_a_queue(stage: Stage) -> str:
    return stage.run(QUEUE_ADMIN, "queue", "create", TENANT)


@scene(QUEUE_ADMIN, "tenantqueues", "list")
def _list_queues(stage: Stage) -> str:
    return stage.run(QUEUE_ADMIN, "queue", "list")


@scene(QUEUE_ADMIN, "leases", "get")
@scene(QUEUE_ADMIN, "services/proxy", "get")
@scene(QUEUE_ADMIN, "serviceaccounts/token", "create")
def _ask_for_figures_and_the_history(stage: Stage) -> str:
    announce_recorder(stage.admin)
    cluster = stage.access.cluster(QUEUE_ADMIN)
    try:
        cluster.get(LEASES, RECORDER_LEASE, LEASE_NAMESPACE)
        cluster.service(SYSTEM_NAMESPACE, proxied(RECORDER_SERVICE), "/v1/usage", {})  # type: ignore[attr-defined]
    except errors.NotFound:
        return only_forbidden(stage.run(QUEUE_ADMIN, "queue", "list", code=0))
    except errors.ClusterError as error:
        return str(error)
    return ""


@scene(QUEUE_ADMIN, "events", "create")
def _create_a_queue_and_tell(stage: Stage) -> str:
    return only_forbidden(stage.run(QUEUE_ADMIN, "queue", "create", TENANT, code=0))


@scene(QUEUE_ADMIN, "tenantqueues", "patch")
def _pause_a_queue(stage: Stage) -> str:
    queue(stage)
    return stage.run(QUEUE_ADMIN, "queue", "pause", TENANT)


@scene(QUEUE_ADMIN, "tenantqueues", "get", "delete")
@scene(QUEUE_ADMIN, "torchjobs", "list")
def _delete_a_queue(stage: Stage) -> str:
    queue(stage)
    return stage.run(QUEUE_ADMIN, "queue", "delete", TENANT)


@scene(QUEUE_ADMIN, "tenantqueues", "watch")
def _kubectl_get_queues_watch(stage: Stage) -> str:
    queue(stage)
    return stage.follow(QUEUE_ADMIN, TENANT_QUEUES)


@scene(READER, "torchjobs", "list")
def _list_all_jobs(stage: Stage) -> str:
    stage.job()
    try:
        assert stage.access.cluster(READER).list(TORCHJOBS).items
    except errors.ClusterError as error:
        return str(error)
    return ""


@scene(DOCTOR, "torchjobs", "list")
@scene(DOCTOR, "tenantqueues", "list")
@scene(DOCTOR, "priorityclasses", "list")
@scene(DOCTOR, "namespaces", "list")
@scene(DOCTOR, "resourcequotas", "list")
@scene(DOCTOR, "pods", "list")
@scene(DOCTOR, "nodes", "list")
@scene(DOCTOR, "configmaps", "list")
@scene(DOCTOR, "leases", "get")
@scene(DOCTOR, "queues", "list")
@scene(DOCTOR, "podgroups.scheduling.volcano.sh", "list")
@scene(DOCTOR, "podgroups.scheduling.x-k8s.io", "list")
@scene(DOCTOR, "podgroups.scheduling.k8s.io", "list")
def _look_at_everything(stage: Stage) -> str:
    stage.job()
    looker = Collector(stage.access.cluster(DOCTOR), Nothing(), Nothing(), LEASE_NAMESPACE)  # type: ignore[arg-type]
    try:
        found = looker.collect().cluster
        return found.strays.unread or found.gangs.unread
    except errors.ClusterError as error:
        return str(error)


@scene(DOCTOR, "leases", "patch")
def _ask_the_leader(stage: Stage) -> str:
    body = {"apiVersion": LEASES.api_version, "kind": LEASES.kind, "metadata": {"name": LEASE}}
    stage.admin.create(LEASES, body | {"spec": {"holderIdentity": "somebody"}}, LEASE_NAMESPACE)
    try:
        rebuild_request.request_rebuild(stage.access.cluster(DOCTOR), LEASE, LEASE_NAMESPACE, seconds=0.0)
    except rebuild_request.RebuildNotDone:  # the request was made; no leader runs here to answer it
        return ""
    except errors.ClusterError as error:
        return str(error)
    return ""
