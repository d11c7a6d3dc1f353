"""The pod groups of one job, each with the state that its scheduler reports.

One rule: the groups come from this process's own caches. The API server is asked in three cases only: for a kind
without a cache, for the groups of a finished job, and for the queue of a group that is not let in.

Wiring: `GroupCache` is any object that holds the informers of the installed kinds, passed as
`reconcilers.reconcile.Caches`. `groups_informer` creates the informer of each of `gang.backends.KINDS`.
"""

import time
from collections.abc import Callable, Collection
from dataclasses import dataclass, field, replace
from typing import Protocol

from crds import labels
from crds.api_resources import Resource
from crds.keys import JobKey
from gang import backends
from gang.values import GroupView
from kube import errors
from kube.api import Cluster, Manifest
from kube.informer import Informer

REMEMBERED_SECONDS = 5.0
"""How long the last state of a queue is trusted. A group that is let in during this time shows it itself."""
MOST_REMEMBERED = 1000


class GroupCache(Protocol):
    """A current copy of the pod groups with torchq's labels, of every installed kind."""

    @property
    def served(self) -> Collection[Resource]:
        """The kinds that the copy holds."""

    def indexed(self, key: str) -> list[GroupView]:
        """Return the groups with a job's uid."""


def groups_informer(cluster: Cluster, resource: Resource) -> Informer[GroupView]:
    """Return a worker process's cache of one kind of pod group; the caller starts it."""
    return Informer(
        cluster,
        resource,
        trim=backends.get_backend_of_kind(resource).trim,
        index=lambda group: group.job_uid or None,
        label_selector=labels.JOB_UID,
    )


@dataclass(frozen=True, slots=True)
class GroupReader:
    """Reads the pod groups of one job at a time."""

    cluster: Cluster
    cache: GroupCache | None = None
    clock: Callable[[], float] = time.time
    _queues: dict[str, tuple[float, Manifest | None]] = field(default_factory=dict)
    """The queues of gang schedulers by name, each with the time until which its state is trusted."""

    def of(self, key: JobKey, scheduler: str | None, *, over: bool = False) -> tuple[GroupView, ...]:
        """Return a job's groups, by name. `scheduler` is the one that binds the job's pods. Raises any ClusterError.

        With `over` the API server is asked: the cache may be behind, and a finished job is not observed again.
        """
        cached = self.cache.indexed(key.uid) if self.cache else []
        groups = {group.uid: group for group in (*cached, *self._list_uncached(key, scheduler, over))}
        matching = [group for group in groups.values() if (group.namespace, group.job_uid) == (key.namespace, key.uid)]
        return tuple(self._judge_pending(group) for group in sorted(matching, key=lambda group: group.name))

    def _list_uncached(self, key: JobKey, scheduler: str | None, over: bool) -> list[GroupView]:
        """Return the groups of a kind without a cache: it was installed, or first used by a job, after this process
        started."""
        served = self.cache.served if self.cache else ()
        backend = backends.get_backend(scheduler, lambda kind: kind in served)
        if backend.resource is None or (backend.resource in served and not over):
            return []
        try:
            listed = self.cluster.list(backend.resource, key.namespace, label_selector=f"{labels.JOB_UID}={key.uid}")
        except (errors.NotFound, errors.Forbidden):
            return []
        return [backend.trim(manifest) for manifest in listed.items]

    def _judge_pending(self, group: GroupView) -> GroupView:
        """Return the group, with its queue's refusal if it waits; only a waiting group is worth a request."""
        return self.judge(group) if group.phase == "Pending" and not group.deleting else group

    def judge(self, group: GroupView) -> GroupView:
        """Return a group with the state of its queue. A group that was let in stays let in, even if its queue would
        refuse it now.

        Raises any ClusterError except NotFound for the queue.
        """
        backend = backends.get_backend_of_kind(group.resource)
        if backend.queues is None:
            return group
        refusal = backend.refusal(group.queue, self._queue(backend.queues, group.queue))
        if refusal is None:
            return group
        reason, message = refusal
        return replace(group, phase="Ready" if group.phase == "Ready" else "Refused", reason=reason, message=message)

    def _queue(self, resource: Resource, name: str) -> Manifest | None:
        """Return a queue's object, read once in REMEMBERED_SECONDS: groups that wait are observed often."""
        until, remembered = self._queues.get(name, (0.0, None))
        now = self.clock()
        if now < until <= now + REMEMBERED_SECONDS:  # the clock may have been set back
            return remembered
        try:
            manifest = self.cluster.get(resource, name)
        except errors.NotFound:
            manifest = None
        if len(self._queues) >= MOST_REMEMBERED:
            self._queues.clear()
        self._queues[name] = (now + REMEMBERED_SECONDS, manifest)
        return manifest
