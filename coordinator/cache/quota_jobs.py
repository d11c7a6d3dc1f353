"""The jobs that are routed again when something else changes: those of namespaces with ResourceQuotas, when one of
these changes; those that name queues of the gang scheduler; those with ports that they chose themselves, when such a
port is free; and those that their schedulers refuse, when there may be room on a node.

One rule: the usage in a ResourceQuota changes with every pod. So a namespace is judged at once after its first change,
and then at most once in EVERY seconds. A job is routed again only if the result for it has changed.
"""

import math
import threading
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, field, replace

from coordinator.cache.node_views import NodeView
from coordinator.cache.noted_jobs import NotedJobs
from coordinator.cache.views import JobView, PodView
from crds.keys import JobKey
from crds.resources import amounts
from crds.resources.amounts import Amounts
from gang.values import GangQueue

EVERY = 0.5
"""Seconds between two judgements of one namespace."""


@dataclass(slots=True)
class _Namespace:
    """The facts about a namespace with ResourceQuotas."""

    keys: set[JobKey] = field(default_factory=set)
    """Its unfinished jobs."""
    changed: set[JobKey] = field(default_factory=set)
    """The jobs that have changed since it was judged."""
    blocked: frozenset[JobKey] = frozenset()
    """The jobs that ResourceQuotas kept out of the order when it was judged."""
    judged: float = -math.inf


class QuotaJobs:
    """The unfinished jobs of namespaces with ResourceQuotas; safe to share between threads."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._namespaces: dict[str, _Namespace] = {}
        self._due: dict[str, None] = {}

    def note(self, before: JobView | None, after: JobView | None) -> None:
        """Record a change of a job."""
        if not self._namespaces:
            return
        job = after or before
        assert job is not None
        with self._lock:
            found = self._namespaces.get(job.key.namespace)
            if found is None:
                return
            for keys in (found.keys, found.changed):
                if after is None or after.finished:
                    keys.discard(job.key)
                else:
                    keys.add(job.key)
            if _is_refused(before) or _is_refused(after):
                self._due[job.key.namespace] = None

    def quotas_changed(self, namespace: str, jobs: Callable[[], Iterable[JobView]]) -> None:
        """Record a change of the ResourceQuotas of a namespace; `jobs` returns all jobs of the cluster."""
        with self._lock:
            is_known = namespace in self._namespaces
            found = self._namespaces.setdefault(namespace, _Namespace())
            self._due[namespace] = None
        if is_known:
            return
        keys = {job.key for job in jobs() if job.key.namespace == namespace and not job.finished}
        with self._lock:
            found.keys |= keys
            found.changed |= keys

    def touch(self) -> None:
        """Make every namespace due for a judgement."""
        with self._lock:
            self._due.update(dict.fromkeys(self._namespaces))
            for found in self._namespaces.values():
                found.judged = -math.inf

    def take_due(self) -> list[tuple[str, tuple[JobKey, ...]]]:
        """Return the namespaces to judge now, and the jobs of each."""
        if not self._due:
            return []
        now = self._clock()
        with self._lock:
            due = {name: self._namespaces[name] for name in self._due if now - self._namespaces[name].judged >= EVERY}
            for name, found in due.items():
                del self._due[name]
                found.judged = now
            return [(name, tuple(found.keys)) for name, found in due.items()]

    def record(self, namespace: str, blocked: frozenset[JobKey], *, limited: bool) -> Collection[JobKey]:
        """Record the jobs of a namespace that ResourceQuotas keep out of the order; return the jobs to route again.

        A namespace that is not limited any more is forgotten.
        """
        with self._lock:
            found = self._namespaces[namespace]
            again = (blocked ^ found.blocked) | found.changed
            if limited or namespace in self._due:
                found.blocked, found.changed = blocked, set()
            else:
                del self._namespaces[namespace]
            return again

    def __len__(self) -> int:
        """Return the number of all entries that are kept."""
        with self._lock:
            known = self._namespaces.values()
            return len(self._due) + sum(1 + len(each.keys) + len(each.changed) + len(each.blocked) for each in known)


class GangQueueJobs:
    """The unfinished jobs that name queues of the gang scheduler, and the room that picks have taken there; safe to
    note in one thread and to judge in another."""

    def __init__(self, clock: Callable[[], float], wake: Callable[[], None] = lambda: None) -> None:
        self._clock, self._wake = clock, wake
        self._keys: dict[JobKey, None] = {}
        self._due = True
        self._judged = -EVERY
        self.picked: dict[JobKey, None] = {}
        """The jobs that were picked or grew, as far as their charges are not known from their statuses."""
        self.taken: dict[str, dict[str, int]] = {}
        """By queue of the gang scheduler, what was taken since the queues were judged."""

    def note(self, before: JobView | None, after: JobView | None) -> None:
        """Record a change of a job."""
        job = after or before
        assert job is not None
        if after is None or after.finished:
            self._keys.pop(job.key, None)
        elif job.gang_queue:
            self._keys[job.key] = None
        self._due = True

    def touch(self) -> None:
        """Make the queues of the gang scheduler due for a judgement."""
        self._due = True
        self._wake()

    def take_due(self, at_once: bool) -> bool:
        """Return whether the queues are to be judged now. Without `at_once`, the queues are judged every EVERY
        seconds."""
        if not self._due or (not at_once and 0 <= self._clock() - self._judged < EVERY):
            return False
        self._due, self._judged = False, self._clock()
        return True

    def naming(self) -> tuple[JobKey, ...]:
        """Return the jobs that name a queue of the gang scheduler themselves."""
        return tuple(self._keys)

    def take(self, key: JobKey, demand: Amounts, levels: Iterable[str]) -> None:
        """Record that a job was picked, and the amounts that the job needs of these queues."""
        self.picked[key] = None
        for level in levels:
            amounts.increase(self.taken.setdefault(level, {}), demand)
        self._due = True


class PortJobs:
    """The jobs with ports of a node that they chose themselves; safe to note in one thread and to judge in another."""

    def __init__(self) -> None:
        self._keys: dict[JobKey, None] = {}
        self._owners: frozenset[JobKey] = frozenset()
        """The jobs that had a port of another when the ports were judged; not all of them chose theirs."""
        self._due = False

    def note(self, before: JobView | None, after: JobView | None) -> None:
        """Record a change of a job. A job that ends is kept until its pods are gone."""
        job = after or before
        assert job is not None
        if job.ports and after is not None and not after.finished:
            self._keys[job.key] = None
        self._due = self._due or self._concerns(job.key)

    def note_pods_gone(self, key: JobKey) -> None:
        """Record that no pod of a job holds room any more."""
        self._due = self._due or self._concerns(key)

    def touch(self) -> None:
        """Make the ports due for a judgement, if a job chose its port."""
        self._due = bool(self._keys or self._owners)

    def take_due(self) -> tuple[JobKey, ...] | None:
        """Return the jobs to judge now; None if nothing has changed."""
        if not self._due:
            return None
        self._due = False
        return tuple(self._keys)

    def record(self, owners: Iterable[JobKey], over: Iterable[JobKey]) -> None:
        """Record which jobs have ports, and forget the jobs that need no port any more."""
        self._owners = frozenset(owners)
        for key in over:
            self._keys.pop(key, None)

    def _concerns(self, key: JobKey) -> bool:
        # Most clusters have no such job, and the hash of a key costs more than a look at both collections.
        return bool(self._keys or self._owners) and (key in self._keys or key in self._owners)


class RefusedJobs(NotedJobs):
    """The unfinished jobs whose schedulers do not bind them, or did not, and the changes that may have ended the
    refusal; safe to note in one thread and to read in another.
    """

    def __init__(self) -> None:
        super().__init__(_waits_for_scheduler)
        self.nodes = 0
        """A number that rises when a node comes or is better than before, or a scheduler's queue has other limits."""
        self.ended_pods = 0
        """A number that rises when a pod leaves its node."""

    def note_node(self, after: NodeView | None) -> None:
        """Record a change of a node."""
        self.nodes += after is not None and after.ready

    def note_queue(self, before: GangQueue | None, after: GangQueue | None) -> None:
        """Record a change of a queue of a gang scheduler. The allocated amount of the queue changes with every pod, and
        is not compared."""
        self.nodes += after is not None and (before is None or replace(before, allocated=after.allocated) != after)

    def note_pod(self, before: PodView | None, after: PodView | None) -> None:
        """Record a change of a pod."""
        held = before is not None and before.occupies and before.placed
        self.ended_pods += held and (after is None or not after.occupies)


def _waits_for_scheduler(job: JobView) -> bool:
    waits = job.waits
    return waits is not None and not job.finished and bool(waits.refused_since or waits.refusals)


def _is_refused(job: JobView | None) -> bool:
    return job is not None and job.waits is not None and job.waits.refusal is not None
