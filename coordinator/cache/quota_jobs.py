"""The jobs of namespaces that have ResourceQuotas, and which of them are routed again when a ResourceQuota changes.

One rule: what a ResourceQuota shows as used changes with every pod. So a namespace is judged once in EVERY seconds at
most, the first change at once, and a job is routed again only if the answer for it is another one.
"""

import threading
from collections.abc import Callable, Collection, Iterable

from coordinator.cache.views import JobView
from crds.keys import JobKey

EVERY = 0.5
"""Seconds between two looks at the jobs of one namespace."""


class QuotaJobs:
    """Safe to share between threads."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._keys: dict[str, set[JobKey]] = {}
        """By namespace, the jobs that have not finished."""
        self._changed: dict[str, set[JobKey]] = {}
        """Those of them that have changed since their namespace was judged."""
        self._kept_out: dict[str, frozenset[JobKey]] = {}
        """Those of them that ResourceQuotas kept out of the order when their namespace was judged."""
        self._due: dict[str, None] = {}
        self._judged: dict[str, float] = {}

    def note(self, before: JobView | None, after: JobView | None) -> None:
        """A job has changed."""
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
            if _refused(before) or _refused(after):
                self._due[namespace] = None

    def quotas_changed(self, namespace: str, jobs: Callable[[], Iterable[JobView]]) -> None:
        """The ResourceQuotas of a namespace have changed; `jobs` are all that there are."""
        with self._lock:
            known = namespace in self._keys
            self._keys.setdefault(namespace, set())
            self._changed.setdefault(namespace, set())
            self._due[namespace] = None
        if known:
            return
        found = {job.key for job in jobs() if job.key.namespace == namespace and not job.finished}
        with self._lock:
            self._keys[namespace] |= found
            self._changed[namespace] |= found

    def touch(self) -> None:
        """Have every namespace judged again, at once."""
        with self._lock:
            self._due.update(dict.fromkeys(self._keys))
            self._judged.clear()

    def due(self) -> list[tuple[str, tuple[JobKey, ...]]]:
        """The namespaces to be judged now, each with its jobs."""
        if not self._due:
            return []
        now = self._clock()
        with self._lock:
            found = [each for each in self._due if now - self._judged.get(each, now - EVERY) >= EVERY]
            for each in found:
                del self._due[each]
                self._judged[each] = now
            return [(each, tuple(self._keys[each])) for each in found]

    def judged(self, namespace: str, kept_out: frozenset[JobKey], *, limited: bool) -> Collection[JobKey]:
        """Which jobs are to be routed again, now that these are known to be kept out. A namespace that is not limited
        any more is forgotten."""
        with self._lock:
            again = (kept_out ^ self._kept_out.pop(namespace, frozenset())) | self._changed.get(namespace, set())
            if limited or namespace in self._due:
                self._kept_out[namespace] = kept_out
                self._changed[namespace] = set()
            else:
                for each in (self._keys, self._changed, self._judged):
                    each.pop(namespace, None)
            return again

    def __len__(self) -> int:
        """Everything that is remembered."""
        with self._lock:
            sets = (*self._keys.values(), *self._changed.values(), *self._kept_out.values())
            return sum(map(len, sets)) + len(self._due) + len(self._judged)


def _refused(job: JobView | None) -> bool:
    return job is not None and job.waits is not None and job.waits.refusal is not None
