"""The pod groups of one job, each with the state that its scheduler reports.

One rule: the groups come from this process's own caches. The API server is asked in four cases only: for a kind
without a cache, for the groups of a finished job, and for the queue and the Events of a group that is not let in.

Wiring: `GroupCache` is any object that holds the informers of the installed kinds, passed as
`reconcilers.observe.Caches`. `groups_informer` creates the informer of each of `gang.backends.KINDS`.
"""

import logging
import time
from collections.abc import Callable, Collection
from dataclasses import dataclass, field, replace
from typing import Any, Protocol, TypeVar

from crds import excerpts, labels
from crds.api_resources import EVENTS, Resource
from crds.keys import JobKey
from gang import backends
from gang.values import GroupView
from kube import errors
from kube.api import Cluster, Manifest
from kube.informer import Informer
from reconcilers.views import pod_problems

log = logging.getLogger(__name__)
T = TypeVar("T")
REMEMBERED_SECONDS = 5.0
"""How long the last state of a queue is trusted. A group that is let in during this time shows it itself."""
TOLD_SECONDS = 30.0
"""How long the newest Event about a group is trusted."""
UNSEEN_SECONDS = 5.0
"""The age in seconds from which a group should have a status, and its scheduler should say why it is not let in."""
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
    _remembered: dict[tuple[Resource, str], tuple[float, Any]] = field(default_factory=dict)
    """Answers by kind and name, each with the time until which it is trusted."""

    def of(self, key: JobKey, scheduler: str | None, *, over: bool = False) -> tuple[GroupView, ...]:
        """Return a job's groups, by name. `scheduler` is the scheduler that binds the job's pods. Raises any
        ClusterError.

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
        is_waiting = group.phase == "Pending" and not group.deleting
        return self.judge(group) if is_waiting else self.explain(group)

    def judge(self, group: GroupView) -> GroupView:
        """Return a group with the state of its queue, and the condition that the group waits for. A group that was let
        in stays let in, even if its queue would refuse it now.

        Raises any ClusterError except NotFound for the queue.
        """
        backend = backends.get_backend_of_kind(group.resource)
        refusal = backend.queues and backend.refusal(group.queue, self._queue(backend.queues, group.queue))
        if not refusal:
            return self.explain(group)
        reason, message = refusal
        return replace(group, phase="Ready" if group.phase == "Ready" else "Refused", reason=reason, message=message)

    def explain(self, group: GroupView) -> GroupView:
        """Return a group that no scheduler has seen, or that is not let in without a condition, with the known
        facts."""
        if group.since is None or self.clock() - group.since < UNSEEN_SECONDS or group.deleting:
            return group
        if not group.seen:
            check = backends.get_backend_of_kind(group.resource).check
            return replace(group, message=f"no scheduler has seen the group: {check}")
        if group.explained or group.phase != "Pending":
            return group
        words = self._ask(EVENTS, group.uid, TOLD_SECONDS, lambda: self._newest_event(group))
        return replace(group, message=f"{group.message}: {words}", explained=True) if words else group

    def _newest_event(self, group: GroupView) -> str:
        """Return the words of the newest Event that says why a group is not let in; empty if there is no such Event."""
        try:
            listed = self.cluster.list(EVENTS, group.namespace, field_selector=f"involvedObject.uid={group.uid}").items
        except errors.Forbidden as error:
            log.info("why %s %s is not let in is not known: %s", group.resource.kind, group.name, error)
            return ""
        told = [event for event in listed if event.get("reason") == pod_problems.UNSCHEDULABLE]
        newest = max(
            told, key=lambda event: str(event.get("lastTimestamp") or event.get("eventTime") or ""), default={}
        )
        return excerpts.one_line(newest.get("message") or "")

    def _queue(self, resource: Resource, name: str) -> Manifest | None:
        """Return a queue's object; None if the queue does not exist."""

        def read() -> Manifest | None:
            try:
                return self.cluster.get(resource, name)
            except errors.NotFound:
                return None

        return self._ask(resource, name, REMEMBERED_SECONDS, read)

    def _ask(self, resource: Resource, name: str, seconds: float, read: Callable[[], T]) -> T:
        """Return an answer that is asked for once in some seconds: groups that wait are observed often."""
        key, now = (resource, name), self.clock()
        until, remembered = self._remembered.get(key, (0.0, None))
        if now < until <= now + seconds:  # the clock may have been set back
            found: T = remembered
            return found
        answer = read()
        if len(self._remembered) >= MOST_REMEMBERED:
            self._remembered.clear()
        self._remembered[key] = (now + seconds, answer)
        return answer
