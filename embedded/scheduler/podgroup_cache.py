"""What the API server tells of PodGroups and Queues, and what the embedded scheduler writes about them.

One rule: what was written counts until the API server shows it; what could not be is looked at again.
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


class GangBook:
    """All PodGroups and Queues. Readable from any thread; written by the scheduler's."""

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
        """By uid: groups as our own writes left them."""

    @property
    def caches(self) -> tuple[Informer[Any], ...]:
        """What has to be started, and stopped."""
        return self._groups, self._queues

    def gangs(self) -> Gangs:
        """All of them, now."""
        shown = {group.uid: group for group in self._groups.values()}
        self._written = {
            uid: group for uid, group in self._written.items() if uid in shown and group.version > shown[uid].version
        }
        groups = {group.key: group for group in (shown | self._written).values()}
        return Gangs(groups, dict(self._queues.values())) if groups else podgroups.NO_GANGS

    def write(self, group: PodGroup, status: Mapping[str, Any]) -> None:
        """Write a group's status. ClusterError but for what means that the group has changed or gone."""
        patch = {"metadata": {"uid": group.uid}, "status": status}
        try:
            written = self._cluster.patch(POD_GROUPS, group.name, patch, group.namespace)
        except (errors.NotFound, errors.Conflict, errors.Invalid) as e:  # Invalid: another group has its name
            logger.info("the status of PodGroup %s/%s is not written: %s", group.namespace, group.name, e)
            return
        self._written[group.uid] = podgroups.read(written)

    def _group_changed(self, before: PodGroup | None, after: PodGroup | None) -> None:
        ours = after is not None and self._written.get(after.uid) == after
        if before != after and not ours:
            self._changed()

    def _queue_changed(self, before: tuple[str, bool] | None, after: tuple[str, bool] | None) -> None:
        if before != after:
            self._changed()


def _queue(manifest: Manifest) -> tuple[str, bool]:
    return manifest["metadata"]["name"], podgroups.is_open(manifest)
