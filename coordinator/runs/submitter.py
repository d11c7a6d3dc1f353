"""Who submits a job: the annotation with the name that the API server has for this client.

One rule: the name is the server's word, never the client's. A name that a manifest brings along is not kept.
"""

import contextlib

from crds import labels
from crds.api_resources import Resource
from kube import errors
from kube.api import Cluster, Manifest

SELF_SUBJECT_REVIEWS = Resource(
    "authentication.k8s.io", "v1", "selfsubjectreviews", "SelfSubjectReview", namespaced=False
)


def find(cluster: Cluster) -> str:
    """Return the name that the API server has for this client; empty if the server does not tell it: older ones do not
    know the question. Raises the ClusterErrors of a server that answers nothing."""
    body = {"apiVersion": SELF_SUBJECT_REVIEWS.api_version, "kind": SELF_SUBJECT_REVIEWS.kind}
    with contextlib.suppress(errors.NotFound, errors.Forbidden, errors.Invalid):
        status = cluster.create(SELF_SUBJECT_REVIEWS, body).get("status") or {}
        return str((status.get("userInfo") or {}).get("username") or "")
    return ""


def with_name(job: Manifest, user: str) -> Manifest:
    """Return a job with the name of who submits it, in place of any other; with none if the name is empty."""
    metadata = job["metadata"]
    given = metadata.get("annotations") or {}
    annotations = {name: value for name, value in given.items() if name != labels.SUBMITTED_BY}
    return {**job, "metadata": {**metadata, "annotations": annotations | ({labels.SUBMITTED_BY: user} if user else {})}}
