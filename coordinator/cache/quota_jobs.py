"""The jobs of namespaces with ResourceQuotas, and the choice of those that are routed again when a ResourceQuota
changes.

One rule: the usage in a ResourceQuota changes with every pod. So a namespace is judged at once after its first change,
and then at most once in EVERY seconds. A job is routed again only if the result for it has changed.
"""

import threading
from collections.abc import Callable, Collection, Iterable

from coordinator.cache.views import JobView
from crds.keys import JobKey

EVERY = 0.5
"""Seconds between two judgements of one namespace."""


class QuotaJobs:
    """The unfinished jobs of namespaces with ResourceQuotas; safe to share between threads."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._keys: dict[str, set[JobKey]] = {}
        """By namespace, the unfinished jobs."""
        self._changed: dict[str, set[JobKey]] = {}
        """By namespace, the jobs that have changed since the namespace was judged."""
        self._blocked: dict[str, frozenset[JobKey]] = {}
        """By namespace, the jobs that ResourceQuotas kept out of the order when the namespace was judged."""
        self._due: dict[str, None] = {}
        self._judged: dict[str, float] = {}

    def note(self, before: JobView | None, after: JobView | None) -> None:
        """Record a change of a job."""
        if not self._keys:
            return
        job = after or before
        assert job is not None
        namespace = job.key.namespace
        with self._lock:
            keys = self._keys.get(namespace)
            if keys is None:
                return
            if after is None or after.finished:
                keys.discard(job.key)
                self._changed[namespace].discard(job.key)
            else:
                keys.add(job.key)
                self._changed[namespace].add(job.key)
            if _is_refused(before) or _is_refused(after):
                self._due[namespace] = None

    def quotas_changed(self, namespace: str, jobs: Callable[[], Iterable[JobView]]) -> None:
        """Record a change of the ResourceQuotas of a namespace; `jobs` returns all jobs of the cluster."""
        with self._lock:
            is_known = namespace in self._keys
            self._keys.setdefault(namespace, set())
            self._changed.setdefault(namespace, set())
            self._due[namespace] = None
        if is_known:
            return
        keys = {job.key for job in jobs() if job.key.namespace == namespace and not job.finished}
        with self._lock:
            self._keys[namespace] |= keys
            self._changed[namespace] |= keys

    def touch(self) -> None:
        """Make every namespace due for a judgement."""
        with self._lock:
            self._due.update(dict.fromkeys(self._keys))
            self._judged.clear()

    def take_due(self) -> list[tuple[str, tuple[JobKey, ...]]]:
        """Return the namespaces to judge now, and the jobs of each."""
        if not self._due:
            return []
        now = self._clock()
        with self._lock:
            namespaces = [name for name in self._due if now - self._judged.get(name, now - EVERY) >= EVERY]
            for namespace in namespaces:
                del self._due[namespace]
                self._judged[namespace] = now
            return [(namespace, tuple(self._keys[namespace])) for namespace in namespaces]

    def record(self, namespace: str, blocked: frozenset[JobKey], *, limited: bool) -> Collection[JobKey]:
        """Record the jobs of a namespace that ResourceQuotas keep out of the order; return the jobs to route again.

        A namespace that is not limited any more is forgotten.
        """
        with self._lock:
            again = (blocked ^ self._blocked.pop(namespace, frozenset())) | self._changed.get(namespace, set())
            if limited or namespace in self._due:
                self._blocked[namespace] = blocked
                self._changed[namespace] = set()
            else:
                for by_namespace in (self._keys, self._changed, self._judged):
                    by_namespace.pop(namespace, None)
            return again

    def __len__(self) -> int:
        """Return the number of all entries that are kept."""
        with self._lock:
            sets = (*self._keys.values(), *self._changed.values(), *self._blocked.values())
            return sum(map(len, sets)) + len(self._due) + len(self._judged)


def _is_refused(job: JobView | None) -> bool:
    return job is not None and job.waits is not None and job.waits.refusal is not None
