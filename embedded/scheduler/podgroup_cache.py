"""The cache of PodGroups and Queues, and the writes of the embedded scheduler to them.

One rule: what the scheduler wrote counts before the API server shows it. A write that failed is decided again.
"""

import logging
from collections.abc import Callable, Mapping
from typing import Any

from crds.api_resources import GANG_QUEUES, POD_GROUPS
from embedded.scheduler import podgroups
from embedded.scheduler.podgroups import Gangs, PodGroup
from kube import errors
from kube.api import Cluster, Manifest
from kube.informer import Informer

logger = logging.getLogger(__name__)


class PodGroupCache:
    """All PodGroups and Queues. Any thread may read it; only the scheduler's thread writes to it."""

    def __init__(self, cluster: Cluster, changed: Callable[[], None]) -> None:
        self._cluster = cluster
        self._changed = changed
        self._groups: Informer[PodGroup] = Informer(
            cluster, POD_GROUPS, trim=podgroups.read, on_change=self._group_changed
        )
        self._queues: Informer[tuple[str, bool]] = Informer(
            cluster, GANG_QUEUES, trim=_queue, on_change=self._queue_changed
        )
        self._written: dict[str, PodGroup] = {}
        """The groups as this scheduler's own writes left them, by uid."""

    @property
    def caches(self) -> tuple[Informer[Any], ...]:
        """The informers, which the node starts and stops."""
        return self._groups, self._queues

    def gangs(self) -> Gangs:
        """Return all PodGroups and Queues as they are now."""
        cached = {group.uid: group for group in self._groups.values()}
        self._written = {
            uid: group for uid, group in self._written.items() if uid in cached and group.version > cached[uid].version
        }
        groups = {group.key: group for group in (cached | self._written).values()}
        return Gangs(groups, dict(self._queues.values())) if groups else podgroups.NO_GANGS

    def write(self, group: PodGroup, status: Mapping[str, Any]) -> None:
        """Write a group's status. Raise ClusterError, unless the error means that the group has changed or is gone."""
        patch = {"metadata": {"uid": group.uid}, "status": status}
        try:
            written = self._cluster.patch(POD_GROUPS, group.name, patch, group.namespace)
        except (errors.NotFound, errors.Conflict, errors.Invalid) as e:  # Invalid: another group has its name
            logger.info("the status of PodGroup %s/%s is not written: %s", group.namespace, group.name, e)
            return
        self._written[group.uid] = podgroups.read(written)

    def _group_changed(self, before: PodGroup | None, after: PodGroup | None) -> None:
        is_own_write = after is not None and self._written.get(after.uid) == after
        if before != after and not is_own_write:
            self._changed()

    def _queue_changed(self, before: tuple[str, bool] | None, after: tuple[str, bool] | None) -> None:
        if before != after:
            self._changed()


def _queue(manifest: Manifest) -> tuple[str, bool]:
    return manifest["metadata"]["name"], podgroups.is_open(manifest)
