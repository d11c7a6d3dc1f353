"""The pod groups that there are of one job, each with what its scheduler says of it.

One rule: from this process's own caches; asked for only where there is no cache, once a job is over, and the queue of a
group that is not let in.

Wiring: `GroupCache` is whatever holds the informers of the kinds that are installed (`groups_informer` makes one for
each of `gang.backends.KINDS`), `Reconciler(.., groups=cache)`.
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
"""How long a queue is taken to be as it was seen last; who is let in meanwhile shows it at the group."""
MOST_REMEMBERED = 1000


class GroupCache(Protocol):
    """A current copy of the pod groups that carry our labels, of every kind that is installed."""

    @property
    def served(self) -> Collection[Resource]:
        """The kinds it holds."""

    def indexed(self, key: str) -> list[GroupView]:
        """The groups of a job's uid."""


def groups_informer(cluster: Cluster, resource: Resource) -> Informer[GroupView]:
    """The cache a worker process keeps of one kind of pod group; to be started by whoever wires."""
    return Informer(
        cluster,
        resource,
        trim=backends.of_kind(resource).trim,
        index=lambda group: group.job_uid or None,
        label_selector=labels.JOB_UID,
    )


@dataclass(frozen=True, slots=True)
class GroupSight:
    """Sees the groups of one job at a time."""

    cluster: Cluster
    cache: GroupCache | None = None
    clock: Callable[[], float] = time.time
    _queues: dict[str, tuple[float, Manifest | None]] = field(default_factory=dict)
    """Until when it is good, and what the gang scheduler's queue was like."""

    def of(self, key: JobKey, scheduler: str | None, *, over: bool = False) -> tuple[GroupView, ...]:
        """A job's groups, by name; `scheduler` is the one that binds its pods. Any ClusterError.

        Of a job that is `over` the API server is asked: the cache may be behind, and nobody looks at the job again.
        """
        held = self.cache.indexed(key.uid) if self.cache else []
        known = {each.uid: each for each in (*held, *self._asked_for(key, scheduler, over))}
        found = [each for each in known.values() if (each.namespace, each.job_uid) == (key.namespace, key.uid)]
        return tuple(self._waiting(each) for each in sorted(found, key=lambda each: each.name))

    def _asked_for(self, key: JobKey, scheduler: str | None, over: bool) -> list[GroupView]:
        """Those of a kind without a cache: it was installed, or wanted by a job, after this process began."""
        served = self.cache.served if self.cache else ()
        backend = backends.of(scheduler, lambda kind: kind in served)
        if backend.resource is None or (backend.resource in served and not over):
            return []
        try:
            listed = self.cluster.list(backend.resource, key.namespace, label_selector=f"{labels.JOB_UID}={key.uid}")
        except (errors.NotFound, errors.Forbidden):
            return []
        return [backend.trim(each) for each in listed.items]

    def _waiting(self, group: GroupView) -> GroupView:
        """Only who waits, perhaps for a queue that will not have it, is worth a question."""
        return self.judged(group) if group.phase == "Pending" and not group.deleting else group

    def judged(self, group: GroupView) -> GroupView:
        """A group with what its queue would say to it now; who was let in before is in, though it would not be again.

        Any ClusterError but that there is no such queue.
        """
        backend = backends.of_kind(group.resource)
        if backend.queues is None:
            return group
        refusal = backend.refusal(group.queue, self._queue(backend.queues, group.queue))
        if refusal is None:
            return group
        reason, message = refusal
        return replace(group, phase="Ready" if group.phase == "Ready" else "Refused", reason=reason, message=message)

    def _queue(self, resource: Resource, name: str) -> Manifest | None:
        """Asked for once every REMEMBERED_SECONDS, however many groups wait in it: those that wait are seen often."""
        until, known = self._queues.get(name, (0.0, None))
        now = self.clock()
        if now < until <= now + REMEMBERED_SECONDS:  # somebody may have set the clock back
            return known
        try:
            found = self.cluster.get(resource, name)
        except errors.NotFound:
            found = None
        if len(self._queues) >= MOST_REMEMBERED:
            self._queues.clear()
        self._queues[name] = (now + REMEMBERED_SECONDS, found)
        return found
