"""The reading of the objects around a job: its pods, the pod groups of its gang, its last events, its reports.

One rule: this module only reads. An object that is forbidden or missing becomes a note, and the rest is shown
nevertheless.
"""

from collections.abc import Iterable

from coordinator.cli import api_client, in_place, job_ref, output
from coordinator.cli.job_details import JobContext
from coordinator.cli.session import USER_ERRORS, Session
from coordinator.query.documents import Document
from crds import labels, owners
from crds.api_resources import EVENTS, PODS, RESOURCE_QUOTAS
from crds.torchjob import resource_quota
from crds.torchjob.resource_quota import Quota
from gang import backends
from gang.values import GroupView
from kube import errors
from kube.api import Manifest
from kube.client import KubernetesCluster
from reconcilers.views.pod_group_view import GroupReader

REPORT_VARIABLE = "TORCHQ_REPORT_URL"
"""The variable of pods that can report."""


def read(cluster: KubernetesCluster, item: Manifest, *, embedded: bool = False) -> JobContext:
    """Read pods, groups and events of a job; `embedded` means a local cluster. Raises ClusterError if the pods cannot
    be read."""
    metadata, notes = item["metadata"], []
    namespace, selector = metadata["namespace"], f"{labels.JOB_UID}={metadata['uid']}"
    listed = cluster.list(PODS, namespace, label_selector=selector).items
    pods = [pod for pod in listed if owners.job_uid(pod["metadata"])]
    groups: tuple[GroupView, ...] = ()
    events: list[Manifest] = []
    quotas: tuple[Quota, ...] = ()
    try:
        groups = _groups(cluster, item, selector)
    except errors.Forbidden as error:
        notes.append(f"note: the gang's pod groups are not shown: {error}")
    except errors.NotFound:
        notes.append("note: the cluster does not have the pod group kind of the job's gang scheduler")
    try:
        events = cluster.list(EVENTS, namespace, field_selector=f"involvedObject.uid={metadata['uid']}").items
    except errors.Forbidden as error:
        notes.append(f"note: events are not shown: {error}")
    try:
        quotas = _quotas(cluster, item)
    except errors.Forbidden as error:
        notes.append(f"note: the current usage of ResourceQuotas is not shown: {error}")
    if (obstacle := in_place.find_obstacle(cluster, item, embedded=embedded)) is not None:
        notes.append(f"note: {obstacle.field}: {obstacle.message}")
    return JobContext(
        pods=tuple(pods),
        groups=groups,
        events=tuple(events),
        quotas=quotas,
        now=output.now(),
        notes=tuple(notes),
        embedded=embedded,
    )


def _quotas(cluster: KubernetesCluster, item: Manifest) -> tuple[Quota, ...]:
    """Read the ResourceQuotas of the job's namespace, if the job waits for them."""
    waits = (item.get("status") or {}).get("queue") or {}
    if waits.get("reason") != "NamespaceQuota":
        return ()
    return tuple(map(resource_quota.read, cluster.list(RESOURCE_QUOTAS, item["metadata"]["namespace"]).items))


def _groups(cluster: KubernetesCluster, item: Manifest, selector: str) -> tuple[GroupView, ...]:
    """Read the pod groups of an admitted job, if its gang scheduler uses pod groups."""
    admission, metadata = (item.get("status") or {}).get("admission") or {}, item["metadata"]
    backend = backends.get_backend(admission.get("gangScheduler"), cluster.serves)
    if backend.resource is None:
        return ()
    listed = cluster.list(backend.resource, metadata["namespace"], label_selector=selector).items
    groups = [group for item in listed if (group := backend.trim(item)).job_uid == metadata["uid"]]
    reader = GroupReader(cluster)
    return tuple(_judge(reader, group) for group in groups)


def _judge(reader: GroupReader, group: GroupView) -> GroupView:
    """Add the state of the gang scheduler's queue to a group, if this account may read that queue."""
    try:
        return reader.judge(group)
    except errors.Forbidden:
        return group


def read_reports(session: Session, item: Manifest, pods: Iterable[Manifest]) -> Document:
    """Return what the pods of a job have reported, which a coordinator knows; empty if they cannot report."""
    if not any(map(_can_report, pods)):
        return {}
    try:
        return api_client.find(session).reports(job_ref.key(item))
    except USER_ERRORS as error:
        return {"unknown": str(error)}


def _can_report(pod: Manifest) -> bool:
    containers = pod["spec"].get("containers") or ()
    return any(variable.get("name") == REPORT_VARIABLE for each in containers for variable in each.get("env") or ())
