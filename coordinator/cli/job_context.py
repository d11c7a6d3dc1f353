"""What there is beside a job: its pods, its gang's groups, its last events.

One rule: it only looks; what may not be seen, or is not there, is noted, and the rest is shown all the same.
"""

from coordinator.cli import output
from coordinator.cli.job_details import Around
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


def of(cluster: KubernetesCluster, item: Manifest, *, embedded: bool = False) -> Around:
    """Pods, groups and events of a job; `embedded`: on a local cluster. Any ClusterError for the pods."""
    metadata, notes = item["metadata"], []
    namespace, selector = metadata["namespace"], f"{labels.JOB_UID}={metadata['uid']}"
    listed = cluster.list(PODS, namespace, label_selector=selector).items
    pods = [each for each in listed if owners.job_uid(each["metadata"])]
    groups: tuple[GroupView, ...] = ()
    events: list[Manifest] = []
    quotas: tuple[Quota, ...] = ()
    try:
        groups = _groups(cluster, item, selector)
    except errors.Forbidden as error:
        notes.append(f"note: the gang's groups are not shown: {error}")
    except errors.NotFound:
        notes.append("note: the cluster has none of the groups by which the job's gang scheduler binds pods")
    try:
        events = cluster.list(EVENTS, namespace, field_selector=f"involvedObject.uid={metadata['uid']}").items
    except errors.Forbidden as error:
        notes.append(f"note: events are not shown: {error}")
    try:
        quotas = _quotas(cluster, item)
    except errors.Forbidden as error:
        notes.append(f"note: what ResourceQuotas hold now is not known: {error}")
    return Around(
        pods=tuple(pods),
        groups=groups,
        events=tuple(events),
        quotas=quotas,
        now=output.now(),
        notes=tuple(notes),
        embedded=embedded,
    )


def _quotas(cluster: KubernetesCluster, item: Manifest) -> tuple[Quota, ...]:
    """The ResourceQuotas of the namespace of a job that waits for them."""
    waits = (item.get("status") or {}).get("queue") or {}
    if waits.get("reason") != "NamespaceQuota":
        return ()
    return tuple(map(resource_quota.read, cluster.list(RESOURCE_QUOTAS, item["metadata"]["namespace"]).items))


def _groups(cluster: KubernetesCluster, item: Manifest, selector: str) -> tuple[GroupView, ...]:
    """Of a job that is admitted, the pod groups of whoever binds its pods, if that one has any."""
    admission, metadata = (item.get("status") or {}).get("admission") or {}, item["metadata"]
    backend = backends.get_backend(admission.get("gangScheduler"), cluster.serves)
    if backend.resource is None:
        return ()
    listed = cluster.list(backend.resource, metadata["namespace"], label_selector=selector).items
    found = [group for each in listed if (group := backend.trim(each)).job_uid == metadata["uid"]]
    sight = GroupReader(cluster)
    return tuple(_judged(sight, each) for each in found)


def _judged(sight: GroupReader, group: GroupView) -> GroupView:
    """By whoever may see the queues of gang schedulers."""
    try:
        return sight.judged(group)
    except errors.Forbidden:
        return group
