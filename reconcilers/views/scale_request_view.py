"""A scale request as a reconcile sees it.

One rule: no code outside of this module reads the manifest of such a request. A request that cannot be read keeps its
identity and the problem, so that it can be reported to its owner.

A request that the cache does not show in the form that this process has written is read from the API server: else the
same step would be planned again, and the API server would refuse it. Before the number of workers of a job begins to
change, and before the turn of a request comes, all requests of the namespace are read: a request that the cache does
not show yet may name the workers to remove, or may be the older one.
"""

import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Protocol

from crds import integers, labels, scale_request, timestamps
from crds.api_resources import Resource
from crds.errors import InvalidObject
from crds.keys import JobKey
from crds.scale_request import OVER, ScaleIn, ScaleOut, ScaleRequest, ScaleStatus
from kube import errors
from kube.api import Cluster, Manifest
from kube.informer import Informer

REMEMBERED = 10_000
"""The number of requests whose version is remembered; a forgotten one costs at most a refused write."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestView:
    """One request."""

    kind: str
    namespace: str
    name: str
    uid: str
    resource_version: str
    created: datetime
    job: str
    """The name of the job."""
    owners: tuple[Mapping[str, Any], ...] = ()
    """The owner references."""
    finalizers: tuple[str, ...] = ()
    deleting: bool = False
    count: int | None = None
    """The number of workers to add or to remove."""
    names: tuple[str, ...] | None = None
    """The names of the pods to remove; None if the request names none."""
    timeout: int = 600
    time_to_live: int = 600
    status: ScaleStatus = field(default_factory=ScaleStatus)
    problem: str = ""
    """Why the request cannot be read; empty if it can."""

    @property
    def label(self) -> str:
        """The kind and name of the request, as in `status.scaling.request` of a job."""
        return f"{self.kind}/{self.name}"

    @property
    def resource(self) -> Resource:
        """The resource of the request."""
        return scale_request.RESOURCES[self.kind]

    @property
    def adds(self) -> bool:
        """Whether the request adds workers."""
        return self.kind == "ScaleOut"

    @property
    def is_over(self) -> bool:
        """Whether the request has succeeded or failed."""
        return self.status.phase in OVER

    @property
    def has_begun(self) -> bool:
        """Whether the turn of the request has come and it is not over."""
        return self.status.start_time is not None and not self.is_over

    @property
    def is_held(self) -> bool:
        """Whether the request stays after its deletion until a worker lets it go."""
        return labels.SCALE_OUT in self.finalizers

    @property
    def owner_uids(self) -> tuple[str, ...]:
        """The uids of the jobs that own the request."""
        return tuple(str(owner.get("uid")) for owner in self.owners if owner.get("kind") == "TorchJob")

    @property
    def place(self) -> tuple[datetime, str, str]:
        """The sort key of the requests of one job: oldest first."""
        return self.created, self.name, self.kind

    def is_for(self, job_uid: str) -> bool:
        """Return whether the request is for the job with this uid, if the job has the name in the request."""
        return job_uid in (self.uid, *self.owner_uids) if self.owner_uids else True


class RequestCache(Protocol):
    """A current copy of the requests (`requests_informer`), by namespace and name of their jobs."""

    def indexed(self, key: str) -> list[RequestView]:
        """Return the requests for a job; `key` is its namespace, a slash and its name."""


def trim(manifest: Manifest) -> RequestView:
    """Return the view of a request."""
    metadata = manifest["metadata"]
    spec, status = manifest.get("spec"), manifest.get("status")
    selector = spec.get("selector") if isinstance(spec, dict) else None
    identity: dict[str, Any] = {
        "kind": manifest["kind"],
        "namespace": metadata["namespace"],
        "name": metadata["name"],
        "uid": metadata["uid"],
        "resource_version": metadata["resourceVersion"],
        "created": datetime.fromtimestamp(timestamps.seconds_or_none(metadata.get("creationTimestamp")) or 0.0, UTC),
        "owners": tuple(metadata.get("ownerReferences") or ()),
        "finalizers": tuple(metadata.get("finalizers") or ()),
        "deleting": "deletionTimestamp" in metadata,
    }
    try:
        request = scale_request.parse(manifest)
    except InvalidObject as error:
        phase = status.get("phase") if isinstance(status, dict) else None
        known = ScaleStatus(phase=phase) if phase in OVER else ScaleStatus()
        job = str(selector.get("name", "")) if isinstance(selector, dict) else ""
        return RequestView(**identity, job=job, problem=str(error), status=known)
    return RequestView(**identity, **_content(request))


def version(request: RequestView) -> int:
    """Return the resourceVersion of a request as a number; 0 if it is not a number."""
    return integers.parse(request.resource_version, 0)


def requests_informer(
    cluster: Cluster,
    resource: Resource,
    on_change: Callable[[RequestView | None, RequestView | None], None] | None = None,
) -> Informer[RequestView]:
    """Return a cache of the requests of one kind; the caller starts it."""
    return Informer(cluster, resource, trim=trim, index=job_place, on_change=on_change)


def job_place(request: RequestView) -> str:
    """Return the namespace and the name of the job of a request."""
    return f"{request.namespace}/{request.job}"


def _content(request: ScaleRequest) -> dict[str, Any]:
    spec = request.spec
    content = {
        "job": spec.selector.name,
        "timeout": spec.timeout_seconds,
        "time_to_live": spec.ttl_seconds_after_finished,
        "status": request.status,
    }
    match request:
        case ScaleOut():
            return content | {"count": request.spec.to_add.count}
        case ScaleIn():
            delete = request.spec.to_delete
            return content | {"count": delete.count, "names": delete.pod_names or None}


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
            requests = map(trim, listed.items)
            yield from (request for request in requests if job_place(request) == place)

    def _current(self, cached: list[RequestView]) -> Iterator[RequestView]:
        for request in cached:
            with self._lock:
                written = self._written.get(request.uid, 0)
            current = request if version(request) >= written else self._read(request)
            if current is not None:
                yield current

    def _read(self, request: RequestView) -> RequestView | None:
        """Return a request as it is now; None if it no longer exists."""
        try:
            found = self.cluster.get(request.resource, request.name, request.namespace)
        except errors.NotFound:
            return None
        return trim(found) if found["metadata"]["uid"] == request.uid else None


def _may_begin(requests: tuple[RequestView, ...]) -> bool:
    """Return whether the turn of one of these requests may come."""
    return not any(request.has_begun for request in requests) and not all(request.is_over for request in requests)
