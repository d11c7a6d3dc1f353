"""The scale requests that exist, and the keys under which workers carry them out.

One rule: a request only makes a key due; the worker decides what to do about the request. A request whose job does not
exist has a key of its own: the name of the job with the uid of the request.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from coordinator.cache.optional_kinds import OptionalKinds
from coordinator.cache.views import JobView
from crds import scale_request
from crds.api_resources import TORCHJOBS, Resource
from crds.keys import JobKey
from crds.label_names import DNS_LABEL
from kube.api import Cluster, Manifest
from kube.informer import Informer
from kube.object_errors import ObjectErrors


@dataclass(frozen=True, slots=True)
class RequestedJob:
    """The job that a request names."""

    namespace: str
    name: str
    uid: str
    """The uid of the request."""
    owners: tuple[str, ...]
    """The uids of the jobs that own the request; empty before a worker has seen the request with its job."""
    version: str
    """The resourceVersion of the request."""
    unseen: bool
    """Whether a worker has yet to write that it has seen the request, or its deletion."""
    over: bool = False
    """Whether the request has succeeded or failed."""

    @property
    def place(self) -> str:
        """The namespace and the name of the job."""
        return f"{self.namespace}/{self.name}"

    def keys(self, job: JobKey | None) -> list[JobKey]:
        """Return the keys under which the request is carried out; `job` is the job of that name, if such a job
        exists."""
        if not re.match(DNS_LABEL, self.name):
            return []  # the API server stores no such name: it would be no key
        if job is not None and (not self.owners or job.uid in self.owners):
            return [job]
        return [JobKey(self.namespace, self.name, uid) for uid in self.owners or (self.uid,)]


class ScaleRequests:
    """The informers of both kinds of requests, where the API server serves them."""

    def __init__(
        self,
        cluster: Cluster,
        jobs: Informer[JobView],
        mark: Callable[[JobKey], None],
        errors: ObjectErrors,
    ) -> None:
        self._cluster = cluster
        self._jobs = jobs
        self._mark = mark
        self._errors = errors
        self.kinds: OptionalKinds[RequestedJob] = OptionalKinds(
            cluster.serves, scale_request.RESOURCES.values(), self._informer, errors=errors
        )

    def keys(self) -> list[JobKey]:
        """Return the keys under which all requests are carried out."""
        return [
            key for informer in self.kinds.informers for request in informer.values() for key in self.keys_of(request)
        ]

    def has(self, key: JobKey) -> bool:
        """Return whether a request is carried out under this key."""
        return any(key in self.keys_of(request) for request in self._named(key))

    def is_under_way(self, key: JobKey) -> bool:
        """Return whether a request of this key has yet to succeed or fail."""
        return any(not request.over and key in self.keys_of(request) for request in self._named(key))

    def is_unseen(self, key: JobKey) -> bool:
        """Return whether a worker has yet to see a request that names this job. The first worker may have looked
        too early.
        """
        return any(request.unseen for request in self._named(key))

    def awaits_job(self, key: JobKey) -> bool:
        """Return whether the key is the key of a request whose job does not exist."""
        return any(request.uid == key.uid for request in self._named(key))

    def _named(self, key: JobKey) -> list[RequestedJob]:
        """Return the requests that name a job."""
        return self.kinds.indexed(f"{key.namespace}/{key.name}")

    def keys_of(self, request: RequestedJob) -> list[JobKey]:
        """Return the keys under which a request is carried out now."""
        job = self._jobs.get(request.namespace, request.name)
        return request.keys(None if job is None else job.key)

    def _informer(self, resource: Resource) -> Informer[RequestedJob]:
        return Informer(
            self._cluster,
            resource,
            trim=requested_job,
            index=lambda request: request.place,
            on_change=self._changed,
            errors=self._errors,
        )

    def _changed(self, before: RequestedJob | None, after: RequestedJob | None) -> None:
        request = after or before
        if before != after and request is not None:
            for key in self.keys_of(request):
                self._mark(key)


def requested_job(manifest: Manifest) -> RequestedJob:
    """Return the job that a request names."""
    metadata, spec = manifest["metadata"], manifest.get("spec")
    selector: Any = spec.get("selector") if isinstance(spec, dict) else None
    owners, status = metadata.get("ownerReferences") or (), manifest.get("status")
    phase = status.get("phase") if isinstance(status, dict) else None
    return RequestedJob(
        namespace=metadata["namespace"],
        name=str(selector.get("name", "")) if isinstance(selector, dict) else "",
        uid=metadata["uid"],
        owners=tuple(str(owner.get("uid")) for owner in owners if owner.get("kind") == TORCHJOBS.kind),
        version=metadata["resourceVersion"],
        unseen="deletionTimestamp" in metadata or not phase,
        over=phase in scale_request.OVER,
    )
