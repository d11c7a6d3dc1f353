"""Requests to the leader to rebuild the queues from the cluster.

One rule: the caller needs permissions on the Lease only, and no access to Redis. The request is a random id in an
annotation of the Lease. The leader rebuilds the queues, and then writes the same id into another annotation. If the
leader dies before that, the next leader finds the request. Two requests at once lead to one rebuild.
"""

import secrets

from coordinator.errors import CoordinatorError
from coordinator.looks import looks
from crds.api_resources import LEASES
from crds.labels import GROUP
from kube import errors
from kube.api import Cluster, Manifest

REQUEST_ANNOTATION = f"{GROUP}/repair"
"""Annotation of the Lease: the id of the newest request for a rebuild."""
DONE_ANNOTATION = f"{GROUP}/repaired"
"""Annotation of the Lease: the id of the last request that was carried out."""
_LOOK_SECONDS = 0.2


class RebuildNotDone(CoordinatorError):
    """The leader did not rebuild the queues in time, or there is no leader."""


def pending_request(lease: Manifest) -> str:
    """Return the id of a request that is not done yet; empty if no request is open."""
    annotations = lease["metadata"].get("annotations") or {}
    request = str(annotations.get(REQUEST_ANNOTATION, ""))
    return request if request != annotations.get(DONE_ANNOTATION) else ""


def request_rebuild(cluster: Cluster, name: str, namespace: str, *, seconds: float) -> None:
    """Request a rebuild of the queues, and wait until the leader has done it.

    Raises RebuildNotDone if there is no leader, or if the rebuild is not done within `seconds`.
    """
    request = secrets.token_hex(8)
    if not _holder(cluster.get(LEASES, name, namespace)):
        raise RebuildNotDone("no coordinator leads, so the queues cannot be rebuilt: start one (torchq coordinator)")
    cluster.patch(LEASES, name, {"metadata": {"annotations": {REQUEST_ANNOTATION: request}}}, namespace)
    for _ in looks(seconds, _LOOK_SECONDS):
        if _is_done(lease := _read(cluster, name, namespace), request):
            return
    raise RebuildNotDone(
        f"the leader ({_holder(lease) or 'there is none now'}) has not rebuilt the queues within {seconds:.0f} s; the "
        "request stays on the Lease, see the coordinator's log"
    )


def _read(cluster: Cluster, name: str, namespace: str) -> Manifest:
    """Return the Lease; an empty Lease if the API server cannot be reached, since the caller asks again."""
    try:
        return cluster.get(LEASES, name, namespace)
    except (errors.Unreachable, errors.ServerError, errors.TooManyRequests, errors.NotFound):
        return {"metadata": {}}


def _holder(lease: Manifest) -> str:
    return str((lease.get("spec") or {}).get("holderIdentity") or "")


def _is_done(lease: Manifest, request: str) -> bool:
    annotations = lease["metadata"].get("annotations") or {}
    # A later request may have replaced this request. Once the later request is done, this request is done, too.
    return annotations.get(DONE_ANNOTATION) == request or (
        annotations.get(REQUEST_ANNOTATION) not in (None, request) and not pending_request(lease)
    )
