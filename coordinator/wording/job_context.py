"""The reading of the objects around a job: its pods, the pod groups of its gang, its last events.

One rule: an object that is forbidden or missing becomes a note, and the other objects are shown nevertheless.
"""

from collections.abc import Callable, Iterable
from datetime import datetime
from typing import TypeVar

from coordinator.follow import job_objects
from coordinator.runs import in_place
from coordinator.wording.job_details import JobContext
from crds.api_resources import EVENTS, RESOURCE_QUOTAS
from crds.keys import JobKey
from crds.torchjob import resource_quota
from crds.torchjob.resource_quota import Quota
from gang import backends
from gang.values import GroupView
from kube import errors
from kube.api import Manifest
from kube.client import KubernetesCluster
from reconcilers.views.pod_group_view import GroupReader

T = TypeVar("T")


def read(
    cluster: KubernetesCluster, item: Manifest, now: datetime | None = None, *, embedded: bool = False
) -> JobContext:
    """Read pods, groups and events of a job; `embedded` means a local cluster. Raises ClusterError if the pods cannot
    be read."""
    key, notes = JobKey.of(item), list[str]()
    pods = job_objects.pods(cluster, key)

    def attempt(what: str, read: Callable[[], Iterable[T]]) -> tuple[T, ...]:
        try:
            return tuple(read())
        except errors.Forbidden as error:
            notes.append(f"note: {what} not shown: {error}")
            return ()

    groups: tuple[GroupView, ...] = ()
    try:
        groups = attempt("the gang's pod groups are", lambda: _groups(cluster, item))
    except errors.NotFound:
        notes.append("note: the cluster does not have the pod group kind of the job's gang scheduler")
    of_job = f"involvedObject.uid={key.uid}"
    events = attempt("events are", lambda: cluster.list(EVENTS, key.namespace, field_selector=of_job).items)
    quotas = attempt("the current usage of ResourceQuotas is", lambda: _quotas(cluster, item))
    notes += (f"note: {each.field}: {each.message}" for each in in_place.find(cluster, item, embedded=embedded))
    return JobContext(
        pods=tuple(pods),
        groups=groups,
        events=events,
        quotas=quotas,
        now=now,
        notes=tuple(notes),
        embedded=embedded,
    )


def _quotas(cluster: KubernetesCluster, item: Manifest) -> tuple[Quota, ...]:
    """Read the ResourceQuotas of the job's namespace, if the job waits for them."""
    waits = (item.get("status") or {}).get("queue") or {}
    if waits.get("reason") != "NamespaceQuota":
        return ()
    return tuple(map(resource_quota.read, cluster.list(RESOURCE_QUOTAS, item["metadata"]["namespace"]).items))


def _groups(cluster: KubernetesCluster, item: Manifest) -> tuple[GroupView, ...]:
    """Read the pod groups of an admitted job, if its gang scheduler uses pod groups."""
    admission, key = (item.get("status") or {}).get("admission") or {}, JobKey.of(item)
    backend = backends.get_backend(admission.get("gangScheduler"), cluster.serves)
    if backend.resource is None:
        return ()
    listed = cluster.list(backend.resource, key.namespace, label_selector=job_objects.selector(key)).items
    groups = [group for item in listed if (group := backend.trim(item)).job_uid == key.uid]
    reader = GroupReader(cluster)
    return tuple(_judge(reader, group) for group in groups)


def _judge(reader: GroupReader, group: GroupView) -> GroupView:
    """Add the reason for which a group waits, and the state of the gang scheduler's queue if this account may read that
    queue.
    """
    try:
        return reader.judge(group)
    except errors.Forbidden:
        return reader.explain(group)
