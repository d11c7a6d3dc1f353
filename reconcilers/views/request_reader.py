"""The scale requests of one job, from a cache that may be behind this process's own writes.

One rule: a request that the cache does not show as this process has written it is read from the API server. Otherwise
the same step would be planned again, and the API server would refuse it. Before the number of workers of a job begins
to change, all requests of its namespace are read: what the cache has not heard of may say which workers go. So they are
before the turn of a request comes: an older one may have come first.
"""

import threading
from collections import OrderedDict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from crds import scale_request
from crds.keys import JobKey
from kube import errors
from kube.api import Cluster
from reconcilers.views import scale_request_view
from reconcilers.views.scale_request_view import RequestCache, RequestView

REMEMBERED = 10_000
"""The number of requests whose version is remembered; a forgotten one costs at most a refused write."""


@dataclass(slots=True)
class RequestReader:
    """Reads scale requests; shared between threads."""

    cluster: Cluster
    cache: RequestCache | None
    """None if there are no requests."""
    _written: OrderedDict[str, int] = field(default_factory=OrderedDict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def of(self, key: JobKey, *, uncached: bool = False) -> tuple[RequestView, ...]:
        """Return the requests that name a job, oldest first. Raises any ClusterError of the API server."""
        if self.cache is None:
            return ()
        place = f"{key.namespace}/{key.name}"
        cached = () if uncached else tuple(self._current(self.cache.indexed(place)))
        found = self._list(place, key.namespace) if uncached or _may_begin(cached) else cached
        return tuple(sorted(found, key=lambda request: request.place))

    def wrote(self, versions: Mapping[str, int]) -> None:
        """Remember the versions of requests that this process has written, by uid."""
        with self._lock:
            for uid, version in versions.items():
                self._written[uid] = max(version, self._written.pop(uid, 0))
            while len(self._written) > REMEMBERED:
                self._written.popitem(last=False)

    def _list(self, place: str, namespace: str) -> Iterator[RequestView]:
        for resource in scale_request.RESOURCES.values():
            try:
                listed = self.cluster.list(resource, namespace)
            except errors.NotFound:
                continue  # the API server does not serve the kind
            requests = map(scale_request_view.trim, listed.items)
            yield from (request for request in requests if scale_request_view.job_place(request) == place)

    def _current(self, cached: list[RequestView]) -> Iterator[RequestView]:
        for request in cached:
            with self._lock:
                written = self._written.get(request.uid, 0)
            current = request if scale_request_view.version(request) >= written else self._read(request)
            if current is not None:
                yield current

    def _read(self, request: RequestView) -> RequestView | None:
        """Return a request as it is now; None if it no longer exists."""
        try:
            found = self.cluster.get(request.resource, request.name, request.namespace)
        except errors.NotFound:
            return None
        return scale_request_view.trim(found) if found["metadata"]["uid"] == request.uid else None


def _may_begin(requests: tuple[RequestView, ...]) -> bool:
    """Return whether the turn of one of these requests may come."""
    return not any(request.has_begun for request in requests) and not all(request.is_over for request in requests)
